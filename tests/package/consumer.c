/* The worked vector through the C API of an installed evenorm. */
#include <evenorm/evenorm.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const float x[] = {4, 2, 8}, weight[] = {1.5f, 1, 0.5f}, bias[] = {0.5f, 0, -0.5f};
  const float expected[] = {0.0991f, -1.0690f, 0.1682f};
  float y[3];
  int wrong = evenorm_layer_norm_f32(x, y, 1, 3, weight, bias, 1e-5) != EVENORM_OK;
  for (int i = 0; i < 3; ++i) {
    const float difference = y[i] - expected[i];
    printf("%.4f\n", y[i]);
    wrong |= !(difference < 1e-4f && difference > -1e-4f);
  }
  float dx[3], dweight[3], dbias[3];
  wrong |= evenorm_layer_norm_backward_f32(x, x, dx, 1, 3, weight, dweight, dbias, 1e-5) != EVENORM_OK;
  wrong |= memcmp(dbias, x, sizeof x) != 0;
  wrong |= evenorm_layer_norm_f32(x, y, 1, 0, weight, bias, 1e-5) != EVENORM_INVALID_ARGUMENT;
  wrong |= strcmp(evenorm_last_error(), "cols is 0, but it should be at least 1") != 0;
  wrong |= evenorm_version_number() != EVENORM_VERSION_NUMBER;
  return wrong;
}
