// Layer norm of the arrays of Eigen, Armadillo and OpenCV, without copies. Compares each result with the library's own
// arithmetic in double, and exits with status 1 if they differ. CMake does not build it, because evenorm needs none of
// these libraries:
//   c++ -std=c++20 examples/matrices.cpp -isystem /usr/include/eigen3 -isystem /usr/include/opencv4
//       $(pkg-config --cflags --libs evenorm) -larmadillo -lopencv_core
#include <Eigen/Dense>
#include <armadillo>
#include <cmath>
#include <cstdio>
#include <evenorm/evenorm.hpp>
#include <opencv2/core.hpp>

namespace {

constexpr double kEps = 1e-5;  // evenorm's default
bool all_equal = true;

void compare(const char* what, double largest_error, double largest_result) {
  const bool equal = largest_error <= 5 * 0x1p-24 * largest_result;  // README.md, "Accuracy", and a rounding
  std::printf("%-42s %s\n", what, equal ? "ok" : "DIFFERENT");
  all_equal = all_equal && equal;
}

// Any dense matrix of Eigen: row-major or column-major, a Map or a block.
template <class Matrix>
evenorm::Tensor of_eigen(Matrix& m) {
  return {m.data(), evenorm::DType::f32, {m.rows(), m.cols()}, {m.rowStride(), m.colStride()}};
}
evenorm::Tensor of_armadillo(arma::subview<float> m) {
  return {m.colptr(0), evenorm::DType::f32, {m.n_rows, m.n_cols}, {1, m.m.n_rows}};
}
// An image, or a region of one: rows, columns, channels.
evenorm::Tensor of_opencv(const cv::Mat& m) {
  return {m.data, evenorm::DType::f32, {m.rows, m.cols, m.channels()}, {m.step1(0), m.step1(1), 1}};
}

// Each row is an observation. Writes the norm to a block of a larger matrix.
void norm_of_rows() {
  Eigen::MatrixXf x = Eigen::MatrixXf::Random(40, 100), all = Eigen::MatrixXf::Zero(60, 300);
  auto y = all.block(10, 20, x.rows(), x.cols());
  evenorm::run({.x = of_eigen(x), .y = of_eigen(y), .axes = {1}});

  const Eigen::MatrixXd wide = x.cast<double>(), centred = wide.colwise() - wide.rowwise().mean();
  const Eigen::ArrayXd variance = centred.array().square().rowwise().mean();
  const Eigen::ArrayXXd expected = centred.array().colwise() * (variance + kEps).rsqrt();
  compare("Eigen, each row", (y.cast<double>().array() - expected).abs().maxCoeff(), expected.abs().maxCoeff());
}

// Each column is an observation. In place, of some of the columns.
void norm_of_columns() {
  arma::fmat x(100, 40, arma::fill::randu);
  arma::mat expected = arma::conv_to<arma::mat>::from(x.cols(5, 34));
  evenorm::run({.x = of_armadillo(x.cols(5, 34)), .y = of_armadillo(x.cols(5, 34)), .axes = {0}});

  expected.each_row() -= arma::mean(expected, 0).eval();
  expected.each_row() /= arma::sqrt(arma::mean(arma::square(expected), 0) + kEps).eval();
  const arma::mat error = arma::conv_to<arma::mat>::from(x.cols(5, 34)) - expected;
  compare("Armadillo, each column", arma::abs(error).max(), arma::abs(expected).max());
}

// Instance norm: each channel of an image, with a weight for each channel. Of a region, in place.
void norm_of_channels() {
  cv::Mat image(60, 80, CV_32FC3), wide, expected;
  cv::randu(image, 0, 256);
  const cv::Mat region = image(cv::Rect(8, 4, 64, 48));
  region.convertTo(wide, CV_64F);
  const float weight[] = {0.5F, 1, 2};
  evenorm::run({.x = of_opencv(region),
                .y = of_opencv(region),
                .axes = {0, 1},
                .weight = {weight, evenorm::DType::f32, {1, 1, 3}}});

  cv::Scalar mean, deviation, factor;
  cv::meanStdDev(wide, mean, deviation);
  for (int c = 0; c < 3; ++c) factor[c] = weight[c] / std::sqrt(deviation[c] * deviation[c] + kEps);
  cv::multiply(wide - mean, factor, expected);
  region.convertTo(wide, CV_64F);
  compare("OpenCV, each channel", cv::norm(wide, expected, cv::NORM_INF), cv::norm(expected, cv::NORM_INF));
}

}  // namespace

int main() {
  norm_of_rows();
  norm_of_columns();
  norm_of_channels();
  return all_equal ? 0 : 1;
}
