/* The library that a program loads and unloads. It uses evenorm, shared or static, with threads. */
#include <evenorm/evenorm.h>

enum { kRows = 2048, kCols = 256 };

/* Returns 0 if the norm of all rows is correct. */
__attribute__((visibility("default"))) int use_evenorm(void) {
  static float x[kRows * kCols], y[kRows * kCols];
  for (int i = 0; i < kRows * kCols; ++i) x[i] = i % 2 == 0 ? 3.0f : 5.0f;
  const int64_t shape[] = {kRows, kCols}, cols[] = {kCols};
  evenorm_forward norm = evenorm_forward_defaults();
  norm.x = (evenorm_const_tensor){x, EVENORM_F32, 2, shape, 0};
  norm.y = (evenorm_tensor){y, EVENORM_F32, 2, shape, 0};
  norm.normalized_shape = cols;
  norm.normalized_shape_count = 1;
  norm.eps = 0;
  evenorm_executor pool = {sizeof pool, 0, 0, 0};
  if (evenorm_pool_executor(2, &pool) != EVENORM_OK || evenorm_run(&norm, &pool) != EVENORM_OK) return 1;
  for (int i = 0; i < kRows * kCols; ++i) {
    if (y[i] != (i % 2 == 0 ? -1.0f : 1.0f)) return 2;
  }
  return 0;
}
