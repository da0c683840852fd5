// Gives a matrix of floats times one column the sums that the same column has beside others. Force-included into
// ggml-cpu.c.
//
// ggml multiplies with tiles (llamafile/sgemm.cpp) from two columns on, and one column by dot products of another order
// of sums: the last bits of a token's logits would depend on whether other tokens are decoded with it. A tile adds up
// each of its results in one vector, front to back, and so do the functions here, which also need no barrier.
#pragma once

#if defined(GGML_USE_LLAMAFILE) && defined(__FMA__) && (defined(__AVX512F__) || (defined(__AVX2__) && defined(__F16C__)))

#include <immintrin.h>

#include "ggml-cpu-impl.h"
#include "ggml.h"

#include "llamafile/sgemm.h"

#if defined(__AVX512F__)
#define PYSPEC_VECTOR __m512
#define PYSPEC_LANES 16
#define PYSPEC_ROWS 8
#define PYSPEC_ZERO _mm512_setzero_ps()
#define PYSPEC_FMA _mm512_fmadd_ps
#define PYSPEC_SUM _mm512_reduce_add_ps
#define PYSPEC_LOAD_F32 _mm512_loadu_ps
#define PYSPEC_LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define PYSPEC_LOAD_BF16(p) \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#else
#define PYSPEC_VECTOR __m256
#define PYSPEC_LANES 8
#define PYSPEC_ROWS 4
#define PYSPEC_ZERO _mm256_setzero_ps()
#define PYSPEC_FMA _mm256_fmadd_ps
#define PYSPEC_SUM pyspec_sum
#define PYSPEC_LOAD_F32 _mm256_loadu_ps
#define PYSPEC_LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define PYSPEC_LOAD_BF16(p) \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))

static inline float pyspec_sum(__m256 lanes) {
    __m128 four = _mm_add_ps(_mm256_extractf128_ps(lanes, 1), _mm256_castps256_ps128(lanes));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
#endif

// c[row] = a[row] * b for rows from `row` to `end`, `n_rows` at a time.
#define PYSPEC_COLUMN(NAME, TYPE, VALUE, LANES, LOAD, FMA)                                                       \
    static inline int64_t NAME(int64_t row, int64_t end, int64_t k, const TYPE * a, int64_t lda, const TYPE * b, \
                               float * c, const int n_rows) {                                                    \
        for (; row + n_rows <= end; row += n_rows) {                                                             \
            PYSPEC_VECTOR sums[PYSPEC_ROWS];                                                                     \
            for (int i = 0; i < n_rows; ++i) {                                                                   \
                sums[i] = PYSPEC_ZERO;                                                                           \
            }                                                                                                    \
            for (int64_t l = 0; l < k; l += LANES) {                                                             \
                const VALUE right = LOAD(b + l);                                                                 \
                for (int i = 0; i < n_rows; ++i) {                                                               \
                    sums[i] = FMA(LOAD(a + (row + i) * lda + l), right, sums[i]);                                \
                }                                                                                                \
            }                                                                                                    \
            for (int i = 0; i < n_rows; ++i) {                                                                   \
                c[row + i] = PYSPEC_SUM(sums[i]);                                                                \
            }                                                                                                    \
        }                                                                                                        \
        return row;                                                                                              \
    }

PYSPEC_COLUMN(pyspec_column_f32, float, PYSPEC_VECTOR, PYSPEC_LANES, PYSPEC_LOAD_F32, PYSPEC_FMA)
PYSPEC_COLUMN(pyspec_column_f16, ggml_fp16_t, PYSPEC_VECTOR, PYSPEC_LANES, PYSPEC_LOAD_F16, PYSPEC_FMA)
#if defined(__AVX512BF16__)
#define PYSPEC_LANES_BF16 32
#define PYSPEC_LOAD_PAIRS(p) ((__m512bh)_mm512_loadu_ps((const float *)(p)))
#define PYSPEC_FMA_PAIRS(left, right, sum) _mm512_dpbf16_ps(sum, left, right)
PYSPEC_COLUMN(pyspec_column_bf16, ggml_bf16_t, __m512bh, PYSPEC_LANES_BF16, PYSPEC_LOAD_PAIRS, PYSPEC_FMA_PAIRS)
#else
#define PYSPEC_LANES_BF16 PYSPEC_LANES
PYSPEC_COLUMN(pyspec_column_bf16, ggml_bf16_t, PYSPEC_VECTOR, PYSPEC_LANES, PYSPEC_LOAD_BF16, PYSPEC_FMA)
#endif

// Rows of this thread, in fours.
#define PYSPEC_ROWS_OF_THREAD(COLUMN, TYPE)                                                        \
    do {                                                                                           \
        const int64_t first = m / 4 * params->ith / params->nth * 4;                               \
        const int64_t end = m / 4 * (params->ith + 1) / params->nth * 4;                           \
        int64_t row = COLUMN(first, end, k, (const TYPE *)a, lda, (const TYPE *)b, c, PYSPEC_ROWS); \
        COLUMN(row, end, k, (const TYPE *)a, lda, (const TYPE *)b, c, 4);                          \
    } while (0)

static bool pyspec_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a,
                         int64_t lda, const void * b, int64_t ldb, void * result, int64_t ldc, int a_type, int b_type,
                         int c_type) {
    float * c = (float *)result;
    const int n_lanes = a_type == GGML_TYPE_BF16 ? PYSPEC_LANES_BF16 : PYSPEC_LANES;
    // Where a tile cannot be, dot products have all columns; columns with gaps between them (a turned query of floats)
    // come here only when there is one.
    if (n != 1 || ldb != k || a_type != b_type || c_type != GGML_TYPE_F32 || k % n_lanes != 0 || m % 4 != 0) {
        return llamafile_sgemm(params, m, n, k, a, lda, b, ldb, result, ldc, a_type, b_type, c_type);
    }
    if (a_type == GGML_TYPE_F32) {
        PYSPEC_ROWS_OF_THREAD(pyspec_column_f32, float);
    } else if (a_type == GGML_TYPE_F16) {
        PYSPEC_ROWS_OF_THREAD(pyspec_column_f16, ggml_fp16_t);
    } else if (a_type == GGML_TYPE_BF16) {
        PYSPEC_ROWS_OF_THREAD(pyspec_column_bf16, ggml_bf16_t);
    } else {
        return false;
    }
    return true;
}

#define llamafile_sgemm pyspec_sgemm

#endif
