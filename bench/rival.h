/* What a library offers to be measured: one shared object, build/bench/rival_NAME.so, with these functions in C. The
   driver loads it, hands it buffers, looks at its results, and times bench_run(). Every rival reads the same inputs and
   writes to outputs of its own. */
#ifndef EVENORM_BENCH_RIVAL_H_
#define EVENORM_BENCH_RIVAL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum bench_pass {
  BENCH_FORWARD,
  BENCH_BACKWARD,      /* statistics given */
  BENCH_BACKWARD_ANEW, /* statistics found anew */
  BENCH_RESIDUAL,      /* y and sum */
  BENCH_INT8,          /* a scale per row */
  BENCH_CHANNELS_FIRST /* normalise axis 1 of (images, cols, pixels) */
};
enum bench_kind { BENCH_LAYER, BENCH_RMS };
enum bench_dtype { BENCH_F64, BENCH_F32, BENCH_BF16, BENCH_F16 };

struct bench_problem {
  int32_t pass, kind, dtype, parameter_dtype /* of weight, bias, dweight, dbias */, threads;
  int64_t rows, cols, pixels /* channels first: rows = images * pixels */;
  double eps;
  const void *x, *residual, *dy, *weight, *bias;
  const double *mean, *rstd; /* rows each; backward */
  void *y, *sum;             /* y is int8 for BENCH_INT8 */
  float* scale;
  void *dx, *dweight, *dbias;
};

const char* bench_version(void);               /* e.g. "oneDNN 3.2.0" */
void* bench_make(const struct bench_problem*); /* NULL where the library does not have it; all set-up is here */
void bench_run(void*);                         /* one pass: what is timed */
void bench_free(void*);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
