// See layout_bench.hpp.
#include "layout_bench.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>

#include "evenorm/evenorm.hpp"
#include "timing.hpp"

namespace evenorm::bench {
namespace {

struct Images {
  std::int64_t batch, channels, height, width;

  std::size_t pixels() const { return static_cast<std::size_t>(batch * height * width); }
  std::size_t elements() const { return pixels() * static_cast<std::size_t>(channels); }
};

constexpr Images kImages[] = {{8, 384, 56, 56}, {64, 64, 56, 56}, {8, 768, 28, 28}, {8, 1024, 14, 14},
                              {8, 2048, 7, 7},  {1, 384, 14, 14}, {1, 100000, 8, 8}};

constexpr std::int64_t kChannelAxis[] = {1}, kLastAxis[] = {-1};

Plan plan_for(std::span<const std::int64_t> shape, std::span<const std::int64_t> axes, const Buffer& x, const Buffer& y,
              const Buffer& gamma, const Buffer& beta, const std::int64_t& channels) {
  const std::span<const std::int64_t> parameter(&channels, 1);
  return Plan({.x = {x.data, DType::f32, shape},
               .y = {y.data, DType::f32, shape},
               .axes = axes,
               .weight = {gamma.data, DType::f32, parameter},
               .bias = {beta.data, DType::f32, parameter}});
}

// Elements of images by pixels, as channels-first ones.
void put_channels_first(const Images& images, const Buffer& by_pixels, Buffer& to) {
  const auto channels = static_cast<std::size_t>(images.channels);
  const std::size_t area = images.pixels() / static_cast<std::size_t>(images.batch);
  for (std::size_t pixel = 0; pixel < images.pixels(); ++pixel) {
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t at = (pixel / area * channels + c) * area + pixel % area;
      std::memcpy(to.data + at * sizeof(float), by_pixels.data + (pixel * channels + c) * sizeof(float), sizeof(float));
    }
  }
}

void run_images(const Images& images, std::size_t threads, double seconds) {
  const std::size_t bytes = images.elements() * sizeof(float);
  const auto channels = static_cast<std::size_t>(images.channels);
  Buffer x(bytes), y(bytes), first_x(bytes), first_y(bytes), gamma(channels * 4), beta(channels * 4);
  fill_normal(x, images.elements(), false);
  fill_normal(gamma, channels, false);
  fill_normal(beta, channels, false);
  put_channels_first(images, x, first_x);
  const std::int64_t first_shape[] = {images.batch, images.channels, images.height, images.width};
  const std::int64_t last_shape[] = {images.batch, images.height, images.width, images.channels};
  const Plan first = plan_for(first_shape, kChannelAxis, first_x, first_y, gamma, beta, images.channels);
  const Plan last = plan_for(last_shape, kLastAxis, x, y, gamma, beta, images.channels);
  const Executor executor = pool_executor(threads);

  last.run(executor);
  first.run(executor);
  Buffer expected(bytes);
  put_channels_first(images, y, expected);
  if (std::memcmp(expected.data, first_y.data, bytes) != 0) throw std::runtime_error("channels-first has other bits");

  std::vector<Rival> rivals;
  rivals.push_back({"trailing axis", [&] { last.run(executor); }});
  rivals.push_back({"channels first", [&] { first.run(executor); }});
  measure(rivals, seconds);
  const double last_us = median(rivals[0].times) * 1e6, first_us = median(rivals[1].times) * 1e6;
  const std::string shape = fmt::format("({}, {}, {}, {})", images.batch, images.channels, images.height, images.width);
  fmt::print("{:<22} {:>12.1f} {:>18.1f} {:>8.1f} {:>7.2f}\n", shape, last_us, first_us,
             2e-3 * static_cast<double>(bytes) / first_us, median_ratio(rivals[1], rivals[0]));
  std::fflush(stdout);
}

}  // namespace

void run_layouts(std::size_t threads, double seconds) {
  fmt::print("{:<22} {:>12} {:>18} {:>8} {:>7}\n", "shape, over axis 1", "trailing us", "channels-first us", "GB/s",
             "ratio");
  for (const Images& images : kImages) run_images(images, threads, seconds);
}

}  // namespace evenorm::bench
