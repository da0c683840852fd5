// A loaded GGUF model, shared by contexts, vocabularies and samplers.
// Owns loading with its checks, and the facts that llama.cpp tells about a model; leaves its vocabulary to vocab.hpp.
// close() forbids new use; whoever holds share() keeps the weights until it lets go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "llama.h"

namespace pyspec {

struct ModelOptions {
    std::string path;
    int64_t n_gpu_layers = -1;
    std::optional<std::vector<std::string>> devices;
    int64_t main_gpu = 0;
    std::string split_mode = "layer";
    std::vector<float> tensor_split;
    bool use_mmap = true;
    bool use_mlock = false;
    bool use_extra_bufts = true;
    bool check_tensors = false;
    bool vocab_only = false;
    // Returns false to cancel; an exception it throws stops the load and is passed on. May be empty.
    std::function<bool(float)> progress;
};

class Model {
public:
    // Throws ModelLoadError, LoadCancelledError, InvalidValueError, or what `progress` threw.
    explicit Model(const ModelOptions & options);

    // Valid as long as the caller's share() lives; throws ClosedError after close().
    const llama_model * get() const;
    const llama_vocab * vocab() const;
    // Keeps the weights alive beyond close(): hold it wherever a raw pointer is stored or used without the GIL.
    std::shared_ptr<llama_model> share() const;

    void close();
    bool closed() const;

    const std::string & path() const { return path_; }
    bool vocab_only() const { return vocab_only_; }
    // As it was asked for: negative for all.
    int32_t n_gpu_layers() const { return n_gpu_layers_; }
    std::string description() const;
    std::string architecture() const;
    std::string memory_kind() const;
    std::string quantization() const;
    std::map<std::string, std::string> metadata() const;
    int32_t n_ctx_train() const { return size_or_zero(llama_model_n_ctx_train); }
    int32_t n_embd() const { return size_or_zero(llama_model_n_embd); }
    int32_t n_layer() const { return size_or_zero(llama_model_n_layer); }
    int32_t n_head() const { return size_or_zero(llama_model_n_head); }
    int32_t n_head_kv() const { return size_or_zero(llama_model_n_head_kv); }
    int32_t n_swa() const { return size_or_zero(llama_model_n_swa); }
    std::optional<std::string> chat_template(const std::optional<std::string> & name) const;

private:
    int32_t size_or_zero(int32_t (*size)(const llama_model *)) const;

    std::string path_;
    bool vocab_only_ = false;
    int32_t n_gpu_layers_ = -1;
    mutable std::mutex mutex_;
    std::shared_ptr<llama_model> native_;
};

// general.architecture of a native model, "" when it has none.
std::string architecture_of(const llama_model * model);
// One metadata value as text, nullopt when the key is missing or an array.
std::optional<std::string> metadata_value(const llama_model * model, const std::string & key);

}  // namespace pyspec
