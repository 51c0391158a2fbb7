/* A Transformer's residual connection in C. One pass adds a sublayer's output to the residual stream, normalises the
 * sum and quantises the result to int8 for the next layer's matrix product. */
#include <evenorm/evenorm.h>
#include <stdio.h>

enum { ROWS = 2, COLS = 8 };

int main(void) {
  static const float update[ROWS][COLS] = {{1, -2, 3, 0.5f, 0, 1, 2, -1}, {2, 2, -4, 1, 0.25f, -1, 3, 0}};
  static float stream[ROWS][COLS] = {{4, 2, 8, 1, 3, 0, -2, 5}, {1, 1, 2, 3, 5, 8, 13, 21}};
  static const float gamma[COLS] = {1, 1, 0.5f, 2, 1, 1, 1.5f, 1};
  static const int64_t shape[] = {ROWS, COLS};
  static int8_t bytes[ROWS][COLS];
  static float scale[ROWS];

  evenorm_forward forward = evenorm_forward_defaults();
  forward.x = (evenorm_const_tensor){stream, EVENORM_F32, 2, shape, NULL};
  forward.residual = (evenorm_const_tensor){update, EVENORM_F32, 2, shape, NULL};
  forward.sum = (evenorm_tensor){stream, EVENORM_F32, 2, shape, NULL}; /* updates the stream in place */
  forward.y = (evenorm_tensor){bytes, EVENORM_I8, 2, shape, NULL};
  forward.scale = (evenorm_tensor){scale, EVENORM_F32, 1, shape, NULL};
  forward.weight = (evenorm_const_tensor){gamma, EVENORM_F32, 1, &shape[1], NULL};
  forward.normalized_shape = &shape[1];
  forward.normalized_shape_count = 1;

  if (evenorm_run(&forward, NULL) != EVENORM_OK) {
    fprintf(stderr, "%s\n", evenorm_last_error());
    return 1;
  }
  for (int row = 0; row < ROWS; ++row) {
    printf("sum  ");
    for (int col = 0; col < COLS; ++col) printf("%7.2f", stream[row][col]);
    printf("\nnorm ");
    for (int col = 0; col < COLS; ++col) printf("%7.2f", bytes[row][col] * scale[row]);
    printf("   (bytes times %.5f)\n", scale[row]);
  }
  return 0;
}
