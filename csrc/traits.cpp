#include "traits.hpp"

#include <limits>
#include <memory>
#include <string>

namespace pyspec {

namespace {

// Architectures whose positions index a table of n_ctx_train rows.
bool has_position_table(const std::string & architecture) {
    return architecture == "gpt2" || architecture == "starcoder" || architecture == "mpt";
}

}  // namespace

Traits Traits::of(const Model & model, const llama_context_params & params) {
    const std::string architecture = model.architecture();
    const std::shared_ptr<llama_model> native = model.share();
    const bool hybrid = llama_model_is_hybrid(native.get());
    Traits traits;
    traits.deepseek4 = architecture == "deepseek4";
    traits.recurrent = (hybrid || llama_model_is_recurrent(native.get())) && !traits.deepseek4;
    traits.has_cells = !llama_model_is_recurrent(native.get());
    traits.n_swa = model.n_swa();
    traits.partial_is_part = hybrid || traits.n_swa > 0;
    traits.device_state = traits.recurrent && traits.n_swa == 0;
    // The graph that rotates keys aborts for other types, and for a hybrid whose layers are all recurrent.
    traits.shiftable = !hybrid && (params.type_k == GGML_TYPE_F16 || params.type_k == GGML_TYPE_F32);
    // Its graph writes the states of a second sequence to the wrong cells, and aborts at the end of the buffer.
    traits.mixes_sequences = architecture == "plamo2";
    // Their graphs shift tokens as if all but the first belonged to one sequence.
    traits.one_token_a_sequence = architecture == "arwkv7" || architecture == "rwkv6qwen2";
    traits.rows_of_all_tokens = architecture == "cogvlm";
    traits.pos_end = has_position_table(architecture) ? model.n_ctx_train() : std::numeric_limits<int32_t>::max();
    return traits;
}

}  // namespace pyspec
