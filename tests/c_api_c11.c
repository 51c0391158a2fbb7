/* The C API as a C11 program uses it, compiled with -std=c11 -Wpedantic -Werror. c_api_test.cpp calls evenorm_c11() and
 * has all calls of the API.
 */
#include <evenorm/evenorm.h>
#include <evenorm/evenorm_sharded.h>
#include <math.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define EXPECT(condition) \
  if (!(condition)) return __FILE__ ":" TEXT(__LINE__) ": " #condition

_Static_assert(sizeof(evenorm_const_tensor) == sizeof(evenorm_tensor), "one layout");
_Static_assert(EVENORM_VERSION_NUMBER >= 100, "a macro for #if, too");

/* The worked vector, as a (1, 3) tensor over its last axis, and dy. */
static const float kX[] = {4, 2, 8}, kWeight[] = {1.5f, 1, 0.5f}, kBias[] = {0.5f, 0, -0.5f}, kDy[] = {1, -1, 2};
static const int64_t kShape[] = {1, 3};

/* Computed with 50 digits. */
static const float kY[] = {0.09910846f, -1.06904411f, 0.16815257f}, kDx[] = {0.47247920f, -0.31498667f, -0.15749253f},
                   kDweight[] = {-0.26726103f, 1.06904411f, 2.67261027f};

static int is_near(const float* values, const float* expected) {
  return fabsf(values[0] - expected[0]) < 1e-6f && fabsf(values[1] - expected[1]) < 1e-6f &&
         fabsf(values[2] - expected[2]) < 1e-6f;
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

static evenorm_backward worked_backward(float* dx, float* dweight) {
  evenorm_backward backward = evenorm_backward_defaults();
  backward.x = (evenorm_const_tensor){kX, EVENORM_F32, 2, kShape, NULL};
  backward.dy = (evenorm_const_tensor){kDy, EVENORM_F32, 2, kShape, NULL};
  backward.normalized_shape = &kShape[1];
  backward.normalized_shape_count = 1;
  backward.weight = (evenorm_const_tensor){kWeight, EVENORM_F32, 1, &kShape[1], NULL};
  backward.dx = (evenorm_tensor){dx, EVENORM_F32, 2, kShape, NULL};
  backward.dweight = (evenorm_tensor){dweight, EVENORM_F32, 1, &kShape[1], NULL};
  return backward;
}

static int gather_one(void* context, const void* mine, size_t bytes, void* all) {
  memcpy(all, mine, bytes);
  *(size_t*)context += bytes;
  return 0;
}

/* Returns NULL, or a message on failure. */
const char* evenorm_c11(void);
const char* evenorm_c11(void) {
  float y[3] = {0}, dx[3] = {0}, dweight[3] = {0}, dbias[3] = {0};
  double mean = 0, rstd = 0;
  evenorm_forward forward = worked_forward(y);
  forward.mean = (evenorm_tensor){&mean, EVENORM_F64, 1, kShape, NULL};
  forward.rstd = (evenorm_tensor){&rstd, EVENORM_F64, 1, kShape, NULL};
  EXPECT(evenorm_run(&forward, NULL) == EVENORM_OK && is_near(y, kY));
  EXPECT(fabs(mean - 14.0 / 3) < 1e-12 && fabs(rstd - 1 / sqrt(56.0 / 9 + 1e-5)) < 1e-12);
  memset(y, 0, sizeof y);
  EXPECT(evenorm_layer_norm_f32(kX, y, 1, 3, kWeight, kBias, 1e-5) == EVENORM_OK && is_near(y, kY));

  evenorm_backward backward = worked_backward(dx, dweight);
  EXPECT(forward.eps == 1e-5 && forward.kind == EVENORM_LAYER && backward.eps == 1e-5 &&
         backward.kind == EVENORM_LAYER);
  EXPECT(evenorm_run_backward(&backward, NULL, 0, NULL) == EVENORM_OK && is_near(dx, kDx));
  EXPECT(is_near(dweight, kDweight));
  memset(dx, 0, sizeof dx);
  EXPECT(evenorm_layer_norm_backward_f32(kDy, kX, dx, 1, 3, kWeight, dweight, dbias, 1e-5) == EVENORM_OK);
  EXPECT(is_near(dx, kDx) && is_near(dweight, kDweight) && memcmp(dbias, kDy, sizeof kDy) == 0);

  /* One process has all columns: the worked vector, and the moments of its one row. */
  size_t sent = 0;
  const evenorm_communicator communicator = {sizeof communicator, 0, 1, &sent, gather_one};
  evenorm_moments moments = {0};
  evenorm_sharded_norm* norm = NULL;
  memset(y, 0, sizeof y);
  memset(dx, 0, sizeof dx);
  EXPECT(evenorm_sharded_norm_create(&forward, &communicator, &norm) == EVENORM_OK);
  const size_t before = sent, expected = evenorm_sharded_norm_bytes(norm);
  const evenorm_status first = evenorm_sharded_norm_run_forward(norm, &forward, &moments, 1, NULL);
  const size_t sent_forward = sent - before;
  const evenorm_status second = evenorm_sharded_norm_run_backward(norm, &backward, &moments, 1, NULL);
  evenorm_sharded_norm_destroy(norm);
  EXPECT(first == EVENORM_OK && is_near(y, kY) && moments.count == 3 && fabs(moments.mean - 14.0 / 3) < 1e-12);
  EXPECT(second == EVENORM_OK && is_near(dx, kDx) && sent_forward > 0 && sent_forward == expected);
  return NULL;
}
