#include "grammar.hpp"

#include <cmath>
#include <exception>

#include "errors.hpp"
#include "gbnf.hpp"
#include "log.hpp"

namespace pyspec {

namespace {

std::string piece_of(const llama_vocab * vocab, llama_token token) {
    std::string piece(64, '\0');
    int32_t n = llama_token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, true);
    if (n < 0) {
        piece.resize(-n);
        n = llama_token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, true);
    }
    piece.resize(n > 0 ? n : 0);
    return piece;
}

[[noreturn]] void refuse(const std::string & reason) {
    throw Error("GrammarError", {{"reason", reason}});
}

}  // namespace

Grammar::Grammar(const std::string & text, const std::string & root, const llama_vocab * vocab) : vocab_(vocab) {
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
        throw Error("VocabularyMissingError", {{"what", std::string("a grammar")}});
    }
    check_gbnf(text, root, vocab);
    const LogCapture capture;
    sampler_.reset(llama_sampler_init_grammar(vocab, text.c_str(), root.c_str()));
    if (!sampler_) {
        refuse(capture.reason("llama.cpp refused it without a reason"));
    }
}

Grammar::Grammar(const Grammar & other)
    : vocab_(other.vocab_), sampler_(llama_sampler_clone(other.sampler_.get())), lost_(other.lost_) {}

// A grammar without a way to go on must not be asked: llama.cpp asserts that there is one.
void Grammar::check_alive() const {
    if (lost_) {
        refuse("its place in the text was lost by an earlier token; reset the sampler");
    }
}

void Grammar::mask(llama_token_data * candidates, size_t n_candidates) const {
    check_alive();
    llama_token_data_array array = {candidates, n_candidates, -1, false};
    llama_sampler_apply(sampler_.get(), &array);
}

bool Grammar::allows(llama_token token) const {
    llama_token_data candidate = {token, 1.0f, 0.0f};
    mask(&candidate, 1);
    return candidate.logit != -INFINITY;
}

void Grammar::accept(llama_token token) {
    if (!allows(token)) {
        refuse("token " + std::to_string(token) + " ('" + piece_of(vocab_, token) + "') is not allowed here");
    }
    try {
        llama_sampler_accept(sampler_.get(), token);
    } catch (const std::exception & error) {
        lost_ = true;
        refuse(std::string(error.what()) + "; reset the sampler");
    }
}

void Grammar::reset() {
    llama_sampler_reset(sampler_.get());
    lost_ = false;
}

}  // namespace pyspec
