// The state of one sequence in a reusable buffer, and its form as bytes and as a file.
// Owns the buffer, what the state belongs to, and the header that keeps foreign or damaged bytes from llama.cpp, which
// trusts what it is given. Saving from and restoring into a context is sequence_state.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"

namespace pyspec {

// What a state was taken from; a context gives back only what matches.
struct StateOrigin {
    uint64_t model_hash = 0;
    uint64_t settings_hash = 0;
    uint32_t flags = 0;
    int32_t pos_max = -1;
    // Only for states on the device, which live in the context that saved them.
    uint64_t context_uid = 0;
    int32_t seq_id = -1;
    uint64_t device_save = 0;
};

class State {
public:
    // Marks the state as busy while it lives; throws BusyError.
    class Use {
    public:
        explicit Use(State & state);
        ~Use();
        Use(const Use &) = delete;
        Use & operator=(const Use &) = delete;

    private:
        State & state_;
    };

    size_t n_bytes() const { return n_bytes_; }
    size_t capacity_bytes() const { return capacity_; }
    const StateOrigin & origin() const { return origin_; }
    const uint8_t * data() const { return buffer_.get(); }
    // Owner of data(), for views; a later save leaves a shared buffer alone and takes a new one.
    const std::shared_ptr<uint8_t[]> & buffer() const { return buffer_; }

    // Room for n_bytes, contents undefined; the state is empty until commit().
    uint8_t * reserve(size_t n_bytes);
    void commit(size_t n_bytes, const StateOrigin & origin);
    void clear();

    // Throws StateError when empty or on the device.
    std::string to_bytes() const;
    // Throws StateError (foreign, other version, damaged) or StateSizeError (truncated, too long).
    static std::shared_ptr<State> from_bytes(const void * data, size_t n_bytes);

private:
    friend class Use;

    std::shared_ptr<uint8_t[]> buffer_;
    size_t capacity_ = 0;
    size_t n_bytes_ = 0;
    StateOrigin origin_;
    std::atomic<bool> busy_{false};
};

[[noreturn]] void state_error(const std::string & reason);

// A file of tokens and a state; written beside its place and renamed, so that a crash leaves the old one.
size_t write_state_file(const std::string & path, const State & state, const std::vector<llama_token> & tokens);
std::shared_ptr<State> read_state_file(const std::string & path, std::vector<llama_token> & tokens);

}  // namespace pyspec
