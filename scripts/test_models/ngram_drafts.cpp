// What llama.cpp's own n-gram speculators draft from given tokens, for tests that compare ours with them.
// Owns the commands on stdin and the JSON lines on stdout; drafting is that of the vendored common/speculative.cpp.
//
//   open NAME N_SEQ [OPTION=VALUE ...]   a new speculator of N_SEQ sequences; everything before is forgotten
//   begin SEQ TOKEN ...                  a generation starts with these tokens
//   extend SEQ TOKEN ...                 tokens were decided
//   draft SEQ N_MAX                      prints a draft as [1, 2, 3]; the last decided token is the sampled one
//   accept SEQ N                         so many tokens of the last draft were right
//   write "PATH" N_MIN N_MAX TOKEN ...   a lookup cache file of the n-grams of these tokens
//   merge "PATH" "PATH" "OUT"            a lookup cache file of two
//   read "PATH"                          prints a lookup cache as [[[n-gram], [[token, count], ...]], ...], in order
//
// Linked without libllama: what only draft models need stays unresolved and is never called.

#include "ngram-cache.h"
#include "speculative.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// ---------------------------------------------------------------- stand-ins: what n-gram drafting calls elsewhere

extern "C" int64_t ggml_time_ms(void) {
    return 0;
}

extern "C" void ggml_abort(const char * file, int line, const char * format, ...) {
    std::fprintf(stderr, "%s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::abort();
}

common_time_meas::common_time_meas(int64_t & t_acc, bool) : t_start_us(0), t_acc(t_acc) {}

common_time_meas::~common_time_meas() = default;

std::string string_format(const char * format, ...) {
    return format;
}

// ---------------------------------------------------------------- commands

namespace {

struct Session {
    common_params_speculative params;
    common_speculative_ptr speculator;
    std::vector<llama_tokens> histories;
};

[[noreturn]] void refuse(const std::string & reason) {
    throw std::runtime_error(reason);
}

template <typename T>
T next(std::istream & line, const char * what) {
    T value;
    if (!(line >> value)) {
        refuse(std::string("missing ") + what);
    }
    return value;
}

std::string next_path(std::istream & line) {
    std::string path;
    if (!(line >> std::quoted(path))) {
        refuse("missing a path in quotes");
    }
    return path;
}

llama_tokens rest(std::istream & line) {
    llama_tokens tokens;
    for (llama_token token; line >> token;) {
        tokens.push_back(token);
    }
    if (!line.eof()) {
        refuse("something that is no token");
    }
    return tokens;
}

common_params_speculative_ngram_map & map_params(common_params_speculative & params, common_speculative_type type) {
    switch (type) {
        case COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE:
            return params.ngram_simple;
        case COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K:
            return params.ngram_map_k;
        default:
            return params.ngram_map_k4v;
    }
}

void set(common_params_speculative & params, common_speculative_type type, const std::string & name,
         const std::string & value) {
    auto & map = map_params(params, type);
    if (name == "static") {
        params.ngram_cache.lookup_cache_static = value;
    } else if (name == "dynamic") {
        params.ngram_cache.lookup_cache_dynamic = value;
    } else if (name == "n_match") {
        params.ngram_mod.n_match = std::stoi(value);
    } else if (name == "n_min") {
        params.ngram_mod.n_min = std::stoi(value);
    } else if (name == "n_max") {
        params.ngram_mod.n_max = std::stoi(value);
    } else if (name == "size_n") {
        map.size_n = (uint16_t)std::stoi(value);
    } else if (name == "size_m") {
        map.size_m = (uint16_t)std::stoi(value);
    } else if (name == "min_hits") {
        map.min_hits = (uint16_t)std::stoi(value);
    } else {
        refuse("no option " + name);
    }
}

void open(Session & session, std::istream & line) {
    const auto type = common_speculative_type_from_name(next<std::string>(line, "name"));
    const auto n_seq = next<uint32_t>(line, "number of sequences");
    session = Session();
    session.params.types = {type};
    for (std::string option; line >> option;) {
        const size_t equals = option.find('=');
        set(session.params, type, option.substr(0, equals), option.substr(equals + 1));
    }
    session.speculator.reset(common_speculative_init(session.params, n_seq));
    if (!session.speculator) {
        refuse("no such speculator");
    }
    session.histories.resize(n_seq);
}

void draft(Session & session, llama_seq_id seq_id, int n_max) {
    llama_tokens & history = session.histories.at(seq_id);
    llama_tokens prompt(history.begin(), history.end() - 1), drafted;
    auto & params = common_speculative_get_draft_params(session.speculator.get(), seq_id);
    params = {true, n_max, (llama_pos)prompt.size(), history.back(), &prompt, &drafted};
    common_speculative_draft(session.speculator.get());
    std::cout << '[';
    for (size_t i = 0; i < drafted.size(); ++i) {
        std::cout << (i ? ", " : "") << drafted[i];
    }
    std::cout << ']' << std::endl;
}

void write(std::istream & line) {
    const std::string path = next_path(line);
    const int n_min = next<int>(line, "smallest n"), n_max = next<int>(line, "largest n");
    llama_tokens tokens = rest(line);
    common_ngram_cache cache;
    common_ngram_cache_update(cache, n_min, n_max, tokens, (int)tokens.size(), false);
    common_ngram_cache_save(cache, path);
}

void merge(std::istream & line) {
    common_ngram_cache target = common_ngram_cache_load(next_path(line));
    common_ngram_cache added = common_ngram_cache_load(next_path(line));
    common_ngram_cache_merge(target, added);
    common_ngram_cache_save(target, next_path(line));
}

void read(std::istream & line) {
    std::map<std::vector<llama_token>, std::map<llama_token, int32_t>> sorted;
    for (const auto & [ngram, counts] : common_ngram_cache_load(next_path(line))) {
        std::vector<llama_token> key(ngram.tokens, ngram.tokens + LLAMA_NGRAM_MAX);
        sorted[key] = std::map<llama_token, int32_t>(counts.begin(), counts.end());
    }
    const char * between = "";
    std::cout << '[';
    for (const auto & [key, counts] : sorted) {
        std::cout << between << "[[";
        for (size_t i = 0; i < key.size(); ++i) {
            std::cout << (i ? ", " : "") << key[i];
        }
        std::cout << "], [";
        const char * between_counts = "";
        for (const auto & [token, count] : counts) {
            std::cout << between_counts << '[' << token << ", " << count << ']';
            between_counts = ", ";
        }
        std::cout << "]]";
        between = ", ";
    }
    std::cout << ']' << std::endl;
}

void run(Session & session, const std::string & command, std::istream & line) {
    if (command == "open") {
        return open(session, line);
    }
    if (command == "write") {
        return write(line);
    }
    if (command == "merge") {
        return merge(line);
    }
    if (command == "read") {
        return read(line);
    }
    const auto seq_id = next<llama_seq_id>(line, "sequence");
    if (command == "begin") {
        session.histories.at(seq_id) = rest(line);
        common_speculative_begin(session.speculator.get(), seq_id, session.histories.at(seq_id));
    } else if (command == "extend") {
        const llama_tokens tokens = rest(line);
        auto & history = session.histories.at(seq_id);
        history.insert(history.end(), tokens.begin(), tokens.end());
    } else if (command == "draft") {
        draft(session, seq_id, next<int>(line, "n_max"));
    } else if (command == "accept") {
        common_speculative_accept(session.speculator.get(), seq_id, next<uint16_t>(line, "n_accepted"));
    } else {
        refuse("no such command");
    }
}

}  // namespace

int main() {
    Session session;
    for (std::string text; std::getline(std::cin, text);) {
        std::istringstream line(text);
        std::string command;
        line >> command;
        try {
            run(session, command, line);
        } catch (const std::exception & error) {
            std::cerr << "ngram-drafts: " << text.substr(0, 80) << ": " << error.what() << '\n';
            return 1;
        }
    }
    return 0;
}
