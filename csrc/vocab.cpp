#include "vocab.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "errors.hpp"

namespace pyspec {

namespace {

// Two limits of llama.cpp's check of draft models (common/speculative.cpp): sizes may differ by padding, and the
// first few control tokens may have other names.
constexpr int32_t max_size_difference = 128;
constexpr int32_t first_compared_control = 5;

std::string quoted(const char * text) {
    return "'" + std::string(text) + "'";
}

std::string yes_no(bool value) {
    return value ? "True" : "False";
}

std::string id_text(llama_token token) {
    return token == LLAMA_TOKEN_NULL ? "None" : std::to_string(token);
}

}  // namespace

Vocab::Vocab(const Model & model)
    : native_(model.share()), vocab_(llama_model_get_vocab(native_.get())), n_tokens_(llama_vocab_n_tokens(vocab_)) {}

std::string Vocab::kind() const {
    switch (llama_vocab_type(vocab_)) {
        case LLAMA_VOCAB_TYPE_SPM:
            return "spm";
        case LLAMA_VOCAB_TYPE_BPE:
            return "bpe";
        case LLAMA_VOCAB_TYPE_WPM:
            return "wpm";
        case LLAMA_VOCAB_TYPE_UGM:
            return "ugm";
        case LLAMA_VOCAB_TYPE_RWKV:
            return "rwkv";
        case LLAMA_VOCAB_TYPE_PLAMO2:
            return "plamo2";
        case LLAMA_VOCAB_TYPE_TEST:
            return "test";
        default:
            return "none";
    }
}

bool Vocab::has_text() const {
    return llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_NONE;
}

std::optional<llama_token> Vocab::special(llama_token (*which)(const llama_vocab *)) const {
    const llama_token token = which(vocab_);
    return token == LLAMA_TOKEN_NULL ? std::nullopt : std::optional<llama_token>(token);
}

bool Vocab::add_bos() const {
    return llama_vocab_get_add_bos(vocab_);
}

bool Vocab::add_eos() const {
    return llama_vocab_get_add_eos(vocab_);
}

std::vector<llama_token> Vocab::eog_tokens() const {
    std::vector<llama_token> tokens;
    for (llama_token token = 0; token < n_tokens_; ++token) {
        if (llama_vocab_is_eog(vocab_, token)) {
            tokens.push_back(token);
        }
    }
    return tokens;
}

llama_token Vocab::checked(int64_t token, int64_t index) const {
    if (token < 0 || token >= n_tokens_) {
        throw Error("TokenRangeError",
                    {{"token", token}, {"index", index}, {"n_vocab", static_cast<int64_t>(n_tokens_)}});
    }
    return static_cast<llama_token>(token);
}

void Vocab::require_text(const std::string & what) const {
    if (!has_text()) {
        throw Error("VocabularyMissingError", {{"what", what}});
    }
}

bool Vocab::is_eog(int64_t token) const {
    return llama_vocab_is_eog(vocab_, checked(token));
}

bool Vocab::is_control(int64_t token) const {
    const llama_token id = checked(token);
    return has_text() && llama_vocab_is_control(vocab_, id);
}

std::string Vocab::text(int64_t token) const {
    require_text("a token's text");
    return llama_vocab_get_text(vocab_, checked(token));
}

double Vocab::score(int64_t token) const {
    require_text("a token's score");
    return llama_vocab_get_score(vocab_, checked(token));
}

// A vocabulary can ask for a special token that it does not have.
void Vocab::require_specials() const {
    const bool is_wpm = llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_WPM;
    const char * missing = nullptr;
    if ((add_bos() || is_wpm) && llama_vocab_bos(vocab_) == LLAMA_TOKEN_NULL) {
        missing = "beginning-of-sequence";
    } else if (add_eos() && !is_wpm && llama_vocab_eos(vocab_) == LLAMA_TOKEN_NULL) {
        missing = "end-of-sequence";
    } else if (is_wpm && llama_vocab_sep(vocab_) == LLAMA_TOKEN_NULL) {
        missing = "separator";
    }
    if (missing != nullptr) {
        unsupported("adding special tokens", std::string("the vocabulary has no ") + missing + " token",
                    "tokenize with add_special=False");
    }
}

std::vector<llama_token> Vocab::tokenize(const std::string & text, bool add_special, bool parse_special) const {
    require_text("tokenize");
    if (text.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        invalid_value("text", static_cast<int64_t>(text.size()), "shorter than 2 GiB");
    }
    if (add_special) {
        require_specials();
    }
    std::vector<llama_token> tokens(text.size() / 3 + 16);
    const auto length = static_cast<int32_t>(text.size());
    try {
        int32_t n = llama_tokenize(vocab_, text.data(), length, tokens.data(), static_cast<int32_t>(tokens.size()),
                                   add_special, parse_special);
        if (n < 0 && n != std::numeric_limits<int32_t>::min()) {
            tokens.resize(static_cast<size_t>(-n));
            n = llama_tokenize(vocab_, text.data(), length, tokens.data(), -n, add_special, parse_special);
        }
        tokens.resize(static_cast<size_t>(std::max(n, 0)));
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception & error) {
        unsupported("tokenizing this text", error.what());
    }
    return tokens;
}

std::string Vocab::detokenize(const llama_token * tokens, int64_t n_tokens, bool remove_special,
                              bool unparse_special) const {
    require_text("detokenize");
    if (n_tokens >= std::numeric_limits<int32_t>::max() / 16) {
        invalid_value("tokens", n_tokens, "fewer than 134,217,727 at once");
    }
    for (int64_t i = 0; i < n_tokens; ++i) {
        checked(tokens[i], i);
    }
    const auto count = static_cast<int32_t>(n_tokens);
    std::string text(static_cast<size_t>(n_tokens) * 8 + 16, '\0');
    int32_t n = llama_detokenize(vocab_, tokens, count, text.data(), static_cast<int32_t>(text.size()), remove_special,
                                 unparse_special);
    if (n < 0) {
        text.resize(static_cast<size_t>(-static_cast<int64_t>(n)));
        n = llama_detokenize(vocab_, tokens, count, text.data(), static_cast<int32_t>(text.size()), remove_special,
                             unparse_special);
    }
    text.resize(static_cast<size_t>(std::max(n, 0)));
    return text;
}

std::string Vocab::token_to_piece(int64_t token, bool special) const {
    require_text("token_to_piece");
    const llama_token id = checked(token);
    std::string piece(64, '\0');
    int32_t n = llama_token_to_piece(vocab_, id, piece.data(), static_cast<int32_t>(piece.size()), 0, special);
    if (n < 0) {
        piece.resize(static_cast<size_t>(-n));
        n = llama_token_to_piece(vocab_, id, piece.data(), static_cast<int32_t>(piece.size()), 0, special);
    }
    piece.resize(static_cast<size_t>(std::max(n, 0)));
    return piece;
}

std::vector<std::string> Vocab::differences(const Vocab & other, int64_t limit) const {
    std::vector<std::string> found;
    const auto add = [&](const std::string & what, const std::string & mine, const std::string & theirs) {
        if (mine != theirs && static_cast<int64_t>(found.size()) < limit) {
            found.push_back(what + ": " + mine + " and " + theirs);
        }
    };
    add("kind of tokenizer", kind(), other.kind());
    const int32_t size_difference = std::abs(n_tokens_ - other.n_tokens_);
    if (size_difference > (has_text() ? max_size_difference : 0)) {
        add("number of tokens", std::to_string(n_tokens_), std::to_string(other.n_tokens_));
    }
    add("adds a beginning-of-sequence token", yes_no(add_bos()), yes_no(other.add_bos()));
    add("adds an end-of-sequence token", yes_no(add_eos()), yes_no(other.add_eos()));
    if (add_bos() && other.add_bos()) {
        add("bos token", id_text(llama_vocab_bos(vocab_)), id_text(llama_vocab_bos(other.vocab_)));
    }
    if (add_eos() && other.add_eos()) {
        add("eos token", id_text(llama_vocab_eos(vocab_)), id_text(llama_vocab_eos(other.vocab_)));
    }
    if (!has_text() || !other.has_text()) {
        return found;
    }
    const int32_t n_common = std::min(n_tokens_, other.n_tokens_);
    for (llama_token token = 0; token < n_common && static_cast<int64_t>(found.size()) < limit; ++token) {
        const char * mine = llama_vocab_get_text(vocab_, token);
        const char * theirs = llama_vocab_get_text(other.vocab_, token);
        if (std::strcmp(mine, theirs) == 0) {
            continue;
        }
        if (token < first_compared_control && is_control(token) && other.is_control(token)) {
            continue;
        }
        add("token " + std::to_string(token), quoted(mine), quoted(theirs));
    }
    return found;
}

}  // namespace pyspec
