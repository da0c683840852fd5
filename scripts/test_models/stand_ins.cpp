// What test-llama-archs needs of llama-common: its log, and the batches of a test run that is never asked for here.
// Linking the real library would double the compile time. Leaves the models themselves to test-llama-archs.

#include "common.h"
#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

static int threshold = 0;

void common_init() {}

struct common_log * common_log_main() {
    return nullptr;
}

void common_log_flush(struct common_log *) {
    std::fflush(stderr);
}

int common_log_get_verbosity_thold() {
    return threshold;
}

void common_log_set_verbosity_thold(int verbosity) {
    threshold = verbosity;
}

int common_log_get_verbosity(enum ggml_log_level level) {
    return level == GGML_LOG_LEVEL_ERROR ? LOG_LEVEL_ERROR : LOG_LEVEL_DEBUG;
}

void common_log_add(struct common_log *, enum ggml_log_level, const char * format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
}

[[noreturn]] static void only_saving_is_linked() {
    std::fputs("this test-llama-archs can only save models: give it -o DIR\n", stderr);
    std::exit(2);
}

common_batch::common_batch(struct llama_context *) {
    only_saving_is_linked();
}

llama_batch_ext * common_batch::get_sub_batch(int32_t, int32_t) {
    only_saving_is_linked();
}

void common_batch::clear() {
    only_saving_is_linked();
}

int32_t common_batch::add(llama_token, llama_pos, llama_seq_id, bool) {
    only_saving_is_linked();
}
