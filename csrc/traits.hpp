// What llama.cpp's memory and graphs of one context can do, decided once from the architecture and the settings.
// Owns every fact about an architecture that a check before a call depends on; leaves the checks to the context.
#pragma once

#include <cstdint>

#include "llama.h"
#include "model.hpp"

namespace pyspec {

struct Traits {
    bool recurrent = false;        // folds tokens into a state: pure recurrent or hybrid
    bool partial_is_part = false;  // PARTIAL_ONLY leaves something out
    bool has_cells = true;         // anything but pure recurrent
    bool deepseek4 = false;
    bool device_state = false;  // PARTIAL_ONLY has only recurrent states, which may stay on the device
    bool mixes_sequences = false;
    bool one_token_a_sequence = false;  // where several are in a batch
    bool rows_of_all_tokens = false;    // the graph does not pick the rows that were asked for
    bool shiftable = false;             // llama.cpp can rotate the keys in the cache
    int32_t n_swa = 0;
    int64_t pos_end = 0;  // positions must be below this

    static Traits of(const Model & model, const llama_context_params & params);
};

}  // namespace pyspec
