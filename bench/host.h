/* measure() in C, of build/bench/libevenorm_bench_host.so: for a driver that is not in C++. */
#ifndef EVENORM_BENCH_HOST_H_
#define EVENORM_BENCH_HOST_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* run(context), again and again: bench_run and what bench_make gave. */
struct bench_work {
  void (*run)(void* context);
  void* context;
};

/* As evenorm::bench::Rounds; there is no default. */
struct bench_rounds {
  double seconds;
  size_t least, most;
  double burst, pause;
};

/* Seconds a call of work i in round r go to wall[i * most + r] and cpu[i * most + r]. Returns the rounds that were
   done, `most` of either at most; -1 where an argument is null or negative or memory ran out. */
int bench_measure(const struct bench_work* works, int count, const struct bench_rounds* rounds, double* wall,
                  double* cpu, int most);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
