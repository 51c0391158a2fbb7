/* The C API as a C11 program uses it, compiled with -std=c11 -Wpedantic -Werror. c_api_test.cpp has all of its calls.
 */
#include "c_api_c11.h"

#include <evenorm/evenorm.h>
#include <evenorm/evenorm_sharded.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define EXPECT(condition) \
  if (!(condition)) return __FILE__ ":" TEXT(__LINE__) ": " #condition

_Static_assert(sizeof(evenorm_const_tensor) == sizeof(evenorm_tensor), "one layout");
_Static_assert(EVENORM_VERSION_NUMBER >= 100, "a macro for #if, too");

/* The worked vector, as a (1, 3) tensor over its last axis. */
static const float kX[] = {4, 2, 8}, kWeight[] = {1.5f, 1, 0.5f}, kBias[] = {0.5f, 0, -0.5f};
static const int64_t kShape[] = {1, 3};

static int is_worked_result(const float* y) {
  return fabsf(y[0] - 0.0991f) < 1e-4f && fabsf(y[1] + 1.0690f) < 1e-4f && fabsf(y[2] - 0.1682f) < 1e-4f;
}

static evenorm_forward worked_forward(float* y) {
  evenorm_forward forward = evenorm_forward_defaults();
  forward.x = (evenorm_const_tensor){kX, EVENORM_F32, 2, kShape, NULL};
  forward.y = (evenorm_tensor){y, EVENORM_F32, 2, kShape, NULL};
  forward.normalized_shape = &kShape[1];
  forward.normalized_shape_count = 1;
  forward.weight = (evenorm_const_tensor){kWeight, EVENORM_F32, 1, &kShape[1], NULL};
  forward.bias = (evenorm_const_tensor){kBias, EVENORM_F32, 1, &kShape[1], NULL};
  return forward;
}

const char* evenorm_c11_forward(void) {
  float y[3] = {0};
  double mean = 0, rstd = 0;
  evenorm_forward forward = worked_forward(y);
  EXPECT(forward.struct_size == sizeof forward && forward.eps == 1e-5 && forward.kind == EVENORM_LAYER);
  forward.mean = (evenorm_tensor){&mean, EVENORM_F64, 1, kShape, NULL};
  forward.rstd = (evenorm_tensor){&rstd, EVENORM_F64, 1, kShape, NULL};
  EXPECT(evenorm_run(&forward, NULL) == EVENORM_OK);
  EXPECT(is_worked_result(y));
  EXPECT(fabs(mean - 14.0 / 3) < 1e-12 && fabs(rstd - 1 / sqrt(56.0 / 9 + 1e-5)) < 1e-12);
  return NULL;
}

const char* evenorm_c11_plain_forms(void) {
  float y[3] = {0};
  EXPECT(evenorm_layer_norm_f32(kX, y, 1, 3, kWeight, kBias, 1e-5) == EVENORM_OK);
  EXPECT(is_worked_result(y));
  const double x64[] = {3, -4};
  double y64[] = {0, 0};
  EXPECT(evenorm_rms_norm_f64(x64, y64, 1, 2, NULL, 0) == EVENORM_OK);
  EXPECT(fabs(y64[0] - 3 / sqrt(12.5)) < 1e-15 && fabs(y64[1] + 4 / sqrt(12.5)) < 1e-15);
  uint16_t x16[] = {0x3F80, 0xBF80}; /* 1, -1 in bf16 */
  EXPECT(evenorm_layer_norm_bf16(x16, x16, 1, 2, NULL, NULL, 0) == EVENORM_OK);
  EXPECT(x16[0] == 0x3F80 && x16[1] == 0xBF80);
  return NULL;
}

/* dx and dweight of the worked vector for dy = (1, -1, 2), computed with 50 digits. */
static int are_worked_gradients(const float* dx, const float* dweight) {
  return fabsf(dx[0] - 0.47247920f) < 1e-6f && fabsf(dx[1] + 0.31498667f) < 1e-6f &&
         fabsf(dx[2] + 0.15749253f) < 1e-6f && fabsf(dweight[0] + 0.26726103f) < 1e-6f &&
         fabsf(dweight[1] - 1.06904411f) < 1e-6f && fabsf(dweight[2] - 2.67261027f) < 1e-6f;
}

const char* evenorm_c11_gradients(void) {
  const float dy[] = {1, -1, 2};
  float dx[3] = {0}, dweight[3] = {0}, dbias[3] = {0};
  size_t bytes = 0;
  evenorm_backward backward = evenorm_backward_defaults();
  EXPECT(backward.struct_size == sizeof backward && backward.eps == 1e-5 && backward.kind == EVENORM_LAYER);
  backward.x = (evenorm_const_tensor){kX, EVENORM_F32, 2, kShape, NULL};
  backward.dy = (evenorm_const_tensor){dy, EVENORM_F32, 2, kShape, NULL};
  backward.normalized_shape = &kShape[1];
  backward.normalized_shape_count = 1;
  backward.weight = (evenorm_const_tensor){kWeight, EVENORM_F32, 1, &kShape[1], NULL};
  backward.dx = (evenorm_tensor){dx, EVENORM_F32, 2, kShape, NULL};
  backward.dweight = (evenorm_tensor){dweight, EVENORM_F32, 1, &kShape[1], NULL};
  EXPECT(evenorm_backward_scratch_bytes(&backward, &bytes) == EVENORM_OK && bytes > 0);
  void* scratch = malloc(bytes);
  if (scratch == NULL) return NULL;
  const evenorm_status ran = evenorm_run_backward(&backward, scratch, bytes, NULL);
  free(scratch);
  EXPECT(ran == EVENORM_OK);
  EXPECT(are_worked_gradients(dx, dweight));
  memset(dx, 0, sizeof dx);
  EXPECT(evenorm_layer_norm_backward_f32(dy, kX, dx, 1, 3, kWeight, dweight, dbias, 1e-5) == EVENORM_OK);
  EXPECT(are_worked_gradients(dx, dweight) && memcmp(dbias, dy, sizeof dy) == 0);
  EXPECT(evenorm_rms_norm_backward_f32(dy, kX, NULL, 1, 3, NULL, dweight, 0) == EVENORM_OK);
  EXPECT(fabsf(dweight[0] - 0.75592895f) < 1e-6f && fabsf(dweight[2] - 3.02371578f) < 1e-6f);
  return NULL;
}

static int gather_one(void* context, const void* mine, size_t bytes, void* all) {
  memcpy(all, mine, bytes);
  *(size_t*)context += bytes;
  return 0;
}

/* One process has all columns: the worked vector, and the moments of its one row. */
const char* evenorm_c11_sharded(void) {
  float y[3] = {0}, dx[3] = {0};
  size_t sent = 0;
  const float dy[] = {1, -1, 2};
  const evenorm_forward forward = worked_forward(y);
  const evenorm_communicator communicator = {sizeof communicator, 0, 1, &sent, gather_one};
  evenorm_moments moments = {0};
  evenorm_sharded_norm* norm = NULL;
  EXPECT(evenorm_sharded_norm_create(&forward, &communicator, &norm) == EVENORM_OK);
  const size_t before = sent, bytes = evenorm_sharded_norm_bytes(norm);
  evenorm_status ran = evenorm_sharded_norm_run_forward(norm, &forward, &moments, 1, NULL);
  const size_t forwards = sent - before;
  evenorm_backward backward = evenorm_backward_defaults();
  backward.x = forward.x;
  backward.dy = (evenorm_const_tensor){dy, EVENORM_F32, 2, kShape, NULL};
  backward.normalized_shape = forward.normalized_shape;
  backward.normalized_shape_count = 1;
  backward.weight = forward.weight;
  backward.dx = (evenorm_tensor){dx, EVENORM_F32, 2, kShape, NULL};
  if (ran == EVENORM_OK) ran = evenorm_sharded_norm_run_backward(norm, &backward, &moments, 1, NULL);
  evenorm_sharded_norm_destroy(norm);
  EXPECT(ran == EVENORM_OK);
  EXPECT(is_worked_result(y) && moments.count == 3 && fabs(moments.mean - 14.0 / 3) < 1e-12);
  EXPECT(bytes > 0 && forwards == bytes);
  EXPECT(fabsf(dx[0] - 0.47247920f) < 1e-6f && fabsf(dx[2] + 0.15749253f) < 1e-6f);
  return NULL;
}
