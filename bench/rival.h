/* The functions through which a library is measured, in a shared object build/bench/rival_NAME.so. The driver loads it,
   passes it buffers, checks its results, and times bench_run(). All rivals read the same inputs and write to the same
   outputs. */
#ifndef EVENORM_BENCH_RIVAL_H_
#define EVENORM_BENCH_RIVAL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum bench_pass {
  BENCH_FORWARD,
  BENCH_BACKWARD,      /* with precomputed statistics */
  BENCH_BACKWARD_ANEW, /* statistics computed again */
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
void* bench_make(const struct bench_problem*); /* NULL if the library does not have the pass; all set-up is here */
void bench_run(void*);                         /* one pass; this is timed */
void bench_fetch(void*); /* called once, untimed, after a run: copies results to the problem's buffers if the
                            library allocates its own; may be a no-op */
void bench_free(void*);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
