/* The shortest use of evenorm from C: normalises two rows of floats. */
#include <evenorm/evenorm.h>
#include <stdio.h>

int main(void) {
  const float x[] = {4, 2, 8, 1, 1, 1}; /* two rows of three */
  const float gamma[] = {1.5f, 1, 0.5f}, beta[] = {0.5f, 0, -0.5f};
  float y[6];

  if (evenorm_layer_norm_f32(x, y, 2, 3, gamma, beta, 1e-5) != EVENORM_OK) {
    fprintf(stderr, "%s\n", evenorm_last_error());
    return 1;
  }
  for (int r = 0; r < 2; ++r) printf("%7.4f %7.4f %7.4f\n", y[3 * r], y[3 * r + 1], y[3 * r + 2]);
  return 0;
}
