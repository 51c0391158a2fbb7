// Canonical NaNs.
#pragma once

#include <cstddef>

namespace evenorm::internal {

// Replaces NaNs by the canonical one, because payloads and signs differ between targets.
template <class T>
void canonicalise_nans(T* y, std::size_t n);

}  // namespace evenorm::internal
