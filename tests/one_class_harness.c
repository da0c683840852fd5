// Compares the products of one column of cmake/one_class.h with the first of two columns of ggml's tiles, to the bit.
//
// Prints "TYPE COMPARED REFUSED" for each type of matrix; exits with 1 where one differs. Linked with llamafile/sgemm.cpp,
// whose needs from the rest of ggml stand below.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "one_class.h"

#undef llamafile_sgemm

static int next_chunk;

float ggml_table_f32_f16[1 << 16];  // for CPUs that cannot convert

void ggml_barrier(struct ggml_threadpool * pool) {
    (void)pool;
}

void ggml_threadpool_chunk_set(struct ggml_threadpool * pool, int value) {
    (void)pool;
    next_chunk = value;
}

int ggml_threadpool_chunk_add(struct ggml_threadpool * pool, int value) {
    (void)pool;
    next_chunk += value;
    return next_chunk - value;
}

void ggml_abort(const char * file, int line, const char * format, ...) {
    fprintf(stderr, "%s:%d: %s\n", file, line, format);
    exit(2);
}

void ggml_log_internal(enum ggml_log_level level, const char * format, ...) {
    (void)level;
    (void)format;
}

static unsigned state = 1;

// A number of any size and sign, in the 16 or 32 bits of a type.
static void fill(void * values, size_t n, enum ggml_type type) {
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        const float value = ldexpf((float)(int)(state >> 8) - (float)(1 << 23), -23 - (int)(state % 7u));
        if (type == GGML_TYPE_F32) {
            ((float *)values)[i] = value;
        } else if (type == GGML_TYPE_F16) {
            ((unsigned short *)values)[i] = _cvtss_sh(value, 0);
        } else {
            unsigned bits;
            memcpy(&bits, &value, sizeof bits);
            ((unsigned short *)values)[i] = (unsigned short)(bits >> 16);
        }
    }
}

int main(void) {
    static const int sizes[][2] = {{4, 32},  {64, 256}, {96, 64},   {36, 128}, {32, 1056}, {128, 16},
                                   {64, 40}, {68, 96},  {30, 64},   {256, 8},  {512, 64},  {64, 512}};
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
    static const char * names[] = {"f32", "f16", "bf16"};
    int status = 0;
    for (int t = 0; t < 3; ++t) {
        const size_t bytes = types[t] == GGML_TYPE_F32 ? 4 : 2;
        int n_compared = 0, n_refused = 0;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
            const int m = sizes[s][0], k = sizes[s][1];
            char * a = malloc(bytes * m * k);
            char * b = malloc(bytes * 2 * k);
            float * two = malloc(sizeof(float) * 2 * m);
            float * one = malloc(sizeof(float) * m);
            fill(a, (size_t)m * k, types[t]);
            fill(b, (size_t)2 * k, types[t]);
            struct ggml_compute_params alone = {.ith = 0, .nth = 1};
            const bool tiles = llamafile_sgemm(&alone, m, 2, k, a, k, b, k, two, m, types[t], types[t], GGML_TYPE_F32);
            for (int nth = 1; nth <= 5; ++nth) {
                memset(one, 255, sizeof(float) * m);
                for (int ith = 0; ith < nth; ++ith) {
                    struct ggml_compute_params params = {.ith = ith, .nth = nth};
                    const bool done =
                        pyspec_sgemm(&params, m, 1, k, a, k, b, k, one, m, types[t], types[t], GGML_TYPE_F32);
                    if (done != tiles) {
                        printf("%s %dx%d: %s alone only\n", names[t], m, k, done ? "done" : "refused");
                        status = 1;
                    }
                }
                if (tiles && memcmp(one, two, sizeof(float) * m) != 0) {
                    printf("%s %dx%d by %d threads differs\n", names[t], m, k, nth);
                    status = 1;
                }
            }
            n_compared += tiles;
            n_refused += !tiles;
            free(a);
            free(b);
            free(two);
            free(one);
        }
        printf("%s %d %d\n", names[t], n_compared, n_refused);
    }
    return status;
}
