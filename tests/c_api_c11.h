/* The tests of the C API in C11 (c_api_c11.c), which c_api_test.cpp runs. */
#ifndef EVENORM_TESTS_C_API_C11_H_
#define EVENORM_TESTS_C_API_C11_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns NULL, or a message on failure. */
const char* evenorm_c11_forward(void);
const char* evenorm_c11_plain_forms(void);
const char* evenorm_c11_gradients(void);
const char* evenorm_c11_sharded(void);

#ifdef __cplusplus
}
#endif

#endif
