// One llama_context: memory for n_seq_max sequences, room for one decode, output rows of the last one.
// Owns every check that llama.cpp would answer with an abort, and the rule of one thread at a time.
// Construction is in context.cpp, decoding in decode.cpp, rows in outputs.cpp, sequences in memory.cpp, sequence state
// in sequence_state.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interrupt.hpp"
#include "llama.h"
#include "model.hpp"
#include "traits.hpp"

namespace pyspec {

class State;

struct ContextOptions {
    int64_t n_ctx = 0;
    int64_t n_batch = 2048;
    int64_t n_ubatch = 512;
    int64_t n_seq_max = 1;
    int64_t n_rs_seq = 0;
    int64_t n_outputs_max = 0;
    int64_t n_threads = 0;
    int64_t n_threads_batch = 0;
    std::optional<bool> flash_attn;
    std::string type_k = "f16";
    std::string type_v = "f16";
    bool offload_kqv = true;
    bool op_offload = true;
    bool swa_full = false;
    std::optional<bool> kv_unified;
    std::optional<std::string> rope_scaling;
    double rope_freq_base = 0.0;
    double rope_freq_scale = 0.0;
    double yarn_ext_factor = -1.0;
    double yarn_attn_factor = -1.0;
    double yarn_beta_fast = -1.0;
    double yarn_beta_slow = -1.0;
    int64_t yarn_orig_ctx = 0;
};

// Arrays of n_tokens, read only; `outputs` is 0 or 1.
struct BatchView {
    int64_t n_tokens = 0;
    const llama_token * tokens = nullptr;
    const llama_pos * pos = nullptr;
    const llama_seq_id * seq_ids = nullptr;
    const int8_t * outputs = nullptr;
};

class Context {
public:
    // Marks the context as busy while it lives; throws BusyError (another call is at work) or ClosedError.
    class Use {
    public:
        explicit Use(Context & context);
        explicit Use(const std::shared_ptr<Context> & context) : Use(*context) {}
        ~Use();
        Use(const Use &) = delete;
        Use & operator=(const Use &) = delete;

    private:
        Context & context_;
    };

    Context(std::shared_ptr<Model> model, const ContextOptions & options);
    ~Context();
    Context(const Context &) = delete;
    Context & operator=(const Context &) = delete;

    // --- plain facts, no guard
    llama_context * get() const;  // throws ClosedError
    const std::shared_ptr<Model> & model() const { return model_; }
    const llama_model * native_model() const { return native_model_.get(); }
    int n_vocab() const { return n_vocab_; }
    uint32_t n_ctx() const { return n_ctx_; }
    uint32_t n_ctx_seq() const { return n_ctx_seq_; }
    uint32_t n_batch() const { return n_batch_; }
    uint32_t n_ubatch() const { return n_ubatch_; }
    uint32_t n_seq_max() const { return n_seq_max_; }
    uint32_t n_rs_seq() const { return n_rs_seq_; }
    uint32_t n_outputs_max() const { return n_outputs_max_; }
    bool kv_unified() const { return kv_unified_; }
    bool mixes_sequences() const { return traits_.mixes_sequences; }
    bool closed() const { return native_.load() == nullptr; }
    uint64_t uid() const { return uid_; }
    int32_t n_threads() const;
    int32_t n_threads_batch() const;

    // --- everything below is to be called inside a Use
    void set_n_threads(int64_t n_threads, int64_t n_threads_batch);
    // Refuses before anything changes where it can; see decode.cpp for what llama.cpp leaves in memory on failure.
    void decode(const llama_token * tokens, int64_t n_tokens, int64_t pos, int64_t seq_id, int64_t n_outputs);
    void decode_batch(const BatchView & batch);

    int n_outputs() const { return n_outputs_; }
    // Row of n_vocab() logits of the last decode, valid until the next; throws NoOutputError or OutputRowError.
    const float * logits_row(int64_t row);
    void check_rows(int64_t first_row, int64_t n_rows) const;
    // Checks these rows and returns the first; n_rows may be 0.
    const float * logits_rows(int64_t first_row, int64_t n_rows);
    // Greedy choices, first index on ties; throws SamplerError for NaN.
    void argmax_rows(int64_t first_row, int64_t n_rows, llama_token * out);

    void clear();
    void seq_rm(int64_t seq_id, int64_t p0, int64_t p1);
    void seq_cp(int64_t src, int64_t dst, int64_t p0, int64_t p1);
    bool can_seq_cp(bool partial) const;
    void seq_keep(int64_t seq_id);
    void seq_add(int64_t seq_id, int64_t p0, int64_t p1, int64_t delta);
    llama_pos seq_pos_min(int64_t seq_id) const;
    llama_pos seq_pos_max(int64_t seq_id) const;
    bool can_shift() const;

    size_t state_size(int64_t seq_id, int64_t flags);
    size_t state_save(int64_t seq_id, State & state, int64_t flags);
    size_t state_restore(int64_t seq_id, State & state);
    size_t state_save_file(const std::string & path, int64_t seq_id, const std::vector<llama_token> & tokens);
    std::vector<llama_token> state_load_file(const std::string & path, int64_t seq_id);

    void synchronize();
    std::map<std::string, double> perf();
    void perf_reset();

    // --- from any thread, without a Use
    void abort() { abort_.store(true, std::memory_order_relaxed); }
    void clear_abort() { abort_.store(false, std::memory_order_relaxed); }
    // Frees the native context; BusyError while another call is at work. Idempotent.
    void close();

private:
    void read_back(const ContextOptions & options, const llama_context_params & params);
    llama_seq_id checked_seq(int64_t seq_id) const;
    void check_start(llama_seq_id seq_id, int64_t pos, int64_t n_tokens) const;
    bool holds_window_before(llama_seq_id seq, llama_pos pos) const;
    void check_size(int64_t n_tokens, int64_t n_outputs) const;
    void check_tokens(const llama_token * tokens, int32_t n_tokens) const;
    void run(const llama_token * tokens, int32_t n_tokens, int32_t n_outputs);
    [[noreturn]] void throw_failed(int32_t status, int32_t n_tokens, const std::string & reason);
    static bool on_abort_poll(void * self);
    llama_state_seq_flags checked_flags(int64_t flags) const;

    std::shared_ptr<Model> model_;
    std::shared_ptr<llama_model> native_model_;
    std::atomic<llama_context *> native_{nullptr};
    llama_memory_t memory_ = nullptr;

    uint64_t uid_ = 0;
    uint64_t model_hash_ = 0;
    uint64_t settings_hash_ = 0;
    Traits traits_;
    int n_vocab_ = 0;
    uint32_t n_ctx_ = 0;
    uint32_t n_ctx_seq_ = 0;
    uint32_t n_batch_ = 0;
    uint32_t n_ubatch_ = 0;
    uint32_t n_seq_max_ = 0;
    uint32_t n_rs_seq_ = 0;
    uint32_t n_outputs_max_ = 0;
    bool kv_unified_ = false;

    std::atomic<bool> busy_{false};
    std::atomic<bool> abort_{false};
    Interrupt interrupt_;

    int n_outputs_ = 0;
    int first_row_ = 0;  // of those that were asked for, among those that were computed
    float * logits_ = nullptr;

    // Arrays of llama_batch, [n_batch], made once.
    std::vector<llama_pos> pos_;
    std::vector<llama_seq_id> seq_ids_;
    std::vector<llama_seq_id *> seq_id_ptrs_;
    std::vector<int32_t> n_seq_ids_;
    std::vector<int8_t> outputs_;

    // Per sequence: tokens of its last decode that a snapshot can still roll back (recurrent memory with n_rs_seq),
    // whether such a rollback waits for the next decode, and how often its state was saved on the device.
    std::vector<int32_t> n_undoable_;
    std::vector<bool> rollback_pending_;
    std::vector<uint64_t> device_saves_;
};

}  // namespace pyspec
