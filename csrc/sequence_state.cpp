// Context: taking a sequence's state out and giving it back. Owns the checks before llama_state_seq_*, which trusts
// its bytes, aborts for some memories, and clears the sequence when it fails half way.
#include <exception>

#include "context.hpp"
#include "errors.hpp"
#include "log.hpp"
#include "state.hpp"

namespace pyspec {

namespace {

constexpr llama_state_seq_flags partial_only = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
constexpr llama_state_seq_flags on_device = LLAMA_STATE_SEQ_FLAGS_ON_DEVICE;

}  // namespace

llama_state_seq_flags Context::checked_flags(int64_t flags) const {
    if (flags != 0 && flags != partial_only && flags != (partial_only | on_device)) {
        invalid_value("flags", flags, "STATE_NONE, STATE_PARTIAL_ONLY or STATE_PARTIAL_ONLY | STATE_ON_DEVICE");
    }
    // llama.cpp keeps rows of the attention cache on the device one by one and aborts for blocks of quantized ones.
    if ((flags & on_device) != 0 && !traits_.device_state) {
        unsupported("keeping a sequence's state on the device",
                    "only the states of recurrent layers can be kept there, and this memory's partial state has "
                    "attention cells",
                    "use STATE_PARTIAL_ONLY alone");
    }
    return static_cast<llama_state_seq_flags>(flags);
}

size_t Context::state_size(int64_t seq_id, int64_t flags) {
    const llama_seq_id seq = checked_seq(seq_id);
    return llama_state_seq_get_size_ext(get(), seq, checked_flags(flags));
}

size_t Context::state_save(int64_t seq_id, State & state, int64_t flags) {
    const llama_seq_id seq = checked_seq(seq_id);
    const llama_state_seq_flags wanted = checked_flags(flags);
    const State::Use use(state);
    const LogCapture log;
    llama_synchronize(get());
    const size_t n_bytes = llama_state_seq_get_size_ext(get(), seq, wanted);
    uint8_t * target = state.reserve(n_bytes);
    if ((wanted & on_device) != 0) {
        ++device_saves_[seq];
    }
    size_t n_written = 0;
    try {
        n_written = llama_state_seq_get_data_ext(get(), target, n_bytes, seq, wanted);
    } catch (const std::exception & error) {
        state_error(log.reason(error.what()));
    }
    if (n_written == 0 || n_written > n_bytes) {
        state_error(log.reason("llama.cpp could not write it"));
    }
    StateOrigin origin;
    origin.model_hash = model_hash_;
    origin.settings_hash = settings_hash_;
    origin.flags = wanted;
    origin.pos_max = llama_memory_seq_pos_max(memory_, seq);
    origin.context_uid = uid_;
    origin.seq_id = seq;
    origin.device_save = device_saves_[seq];
    state.commit(n_written, origin);
    return n_written;
}

size_t Context::state_restore(int64_t seq_id, State & state) {
    const llama_seq_id seq = checked_seq(seq_id);
    const State::Use use(state);
    const StateOrigin & origin = state.origin();
    if (state.n_bytes() == 0) {
        state_error("it is empty; save one first");
    }
    if (origin.model_hash != model_hash_) {
        state_error("it is of another model");
    }
    if (origin.settings_hash != settings_hash_) {
        state_error("it was saved with other context settings (types of the cache, flash attention, unified cache, "
                    "rope)");
    }
    const llama_state_seq_flags flags = checked_flags(origin.flags);
    if ((flags & on_device) != 0) {
        if (origin.context_uid != uid_) {
            state_error("its tensors are on the device, in another context");
        }
        if (origin.device_save != device_saves_[origin.seq_id]) {
            state_error("a later save of sequence " + std::to_string(origin.seq_id) + " replaced it on the device");
        }
    }
    const bool is_part = (flags & partial_only) != 0 && traits_.partial_is_part;
    const llama_pos held = llama_memory_seq_pos_max(memory_, seq);
    if (is_part && held < origin.pos_max) {
        state_error("it is only a part, taken at position " + std::to_string(origin.pos_max) + ", and sequence "
                    + std::to_string(seq) + " holds positions up to " + std::to_string(held));
    }

    llama_synchronize(get());
    if (origin.pos_max < 0) {
        llama_memory_seq_rm(memory_, seq, -1, -1);
    }
    const LogCapture log;
    std::string reason;
    try {
        if (llama_state_seq_set_data_ext(get(), state.data(), state.n_bytes(), seq, flags) == 0) {
            reason = log.reason("llama.cpp refused it");
        }
    } catch (const std::exception & error) {
        reason = log.reason(error.what());
    }
    n_undoable_[seq] = 0;
    rollback_pending_[seq] = false;
    if (reason.empty() && llama_memory_seq_pos_max(memory_, seq) != origin.pos_max) {
        reason = "the sequence no longer holds every position up to " + std::to_string(origin.pos_max);
    }
    if (!reason.empty()) {
        llama_memory_seq_rm(memory_, seq, -1, -1);
        state_error(reason + "; sequence " + std::to_string(seq) + " is now empty");
    }
    return state.n_bytes();
}

size_t Context::state_save_file(const std::string & path, int64_t seq_id, const std::vector<llama_token> & tokens) {
    check_tokens(tokens.data(), static_cast<int32_t>(tokens.size()));
    State state;
    state_save(seq_id, state, LLAMA_STATE_SEQ_FLAGS_NONE);
    return write_state_file(path, state, tokens);
}

std::vector<llama_token> Context::state_load_file(const std::string & path, int64_t seq_id) {
    checked_seq(seq_id);
    std::vector<llama_token> tokens;
    const std::shared_ptr<State> state = read_state_file(path, tokens);
    check_tokens(tokens.data(), static_cast<int32_t>(tokens.size()));
    state_restore(seq_id, *state);
    return tokens;
}

}  // namespace pyspec
