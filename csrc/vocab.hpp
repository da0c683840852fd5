// The vocabulary of a model: special ids, token texts, text to tokens and back, comparison of two vocabularies.
// Owns the checks that keep llama.cpp's tokenizers from aborting. Keeps the model's weights alive; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llama.h"
#include "model.hpp"

namespace pyspec {

class Vocab {
public:
    explicit Vocab(const Model & model);

    int32_t n_tokens() const { return n_tokens_; }
    std::string kind() const;
    bool has_text() const;
    // Special ids, nullopt where the vocabulary has none.
    std::optional<llama_token> special(llama_token (*which)(const llama_vocab *)) const;
    bool add_bos() const;
    bool add_eos() const;
    std::vector<llama_token> eog_tokens() const;

    bool is_eog(int64_t token) const;
    bool is_control(int64_t token) const;
    std::string text(int64_t token) const;
    double score(int64_t token) const;

    std::vector<llama_token> tokenize(const std::string & text, bool add_special, bool parse_special) const;
    std::string detokenize(const llama_token * tokens, int64_t n_tokens, bool remove_special,
                           bool unparse_special) const;
    std::string token_to_piece(int64_t token, bool special) const;
    std::vector<std::string> differences(const Vocab & other, int64_t limit) const;

private:
    llama_token checked(int64_t token, int64_t index = 0) const;
    void require_text(const std::string & what) const;
    void require_specials() const;

    std::shared_ptr<llama_model> native_;
    const llama_vocab * vocab_;
    int32_t n_tokens_;
};

}  // namespace pyspec
