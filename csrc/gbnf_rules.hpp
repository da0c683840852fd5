// The rules of a GBNF grammar as far as their left edges go.
// Owns the checks of the whole rule set: undefined rules, left recursion, rules without any text, and how many ways
// lead from a rule to its first character; leaves syntax to gbnf.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pyspec {

[[noreturn]] void grammar_error(const std::string & reason);

// `rule` is -1 for characters and tokens. `is_next_of_chain`: the next rule of a bounded repetition's chain, which is
// stored as the same rule and so is no recursion.
struct GbnfSymbol {
    int rule = -1;
    uint32_t n_elements = 1;
    bool is_next_of_chain = false;
};

using GbnfSequence = std::vector<GbnfSymbol>;

class GbnfRules {
public:
    int named(const std::string & name);
    // A rule for a group or a repetition; it stands for a chain of `weight` rules of llama.cpp.
    int add_unnamed(uint32_t weight);
    void define(int rule, std::vector<GbnfSequence> alternatives);
    size_t n_named() const { return ids_.size(); }

    // Throws GrammarError.
    void check(const std::string & root);

private:
    // A rule that can stand first in another. `seen`: llama.cpp's own check follows it. `grows`: something follows it.
    struct Edge {
        int to;
        bool seen;
        bool grows;
    };
    struct Rule {
        std::string name;
        std::vector<GbnfSequence> alternatives;
        uint32_t weight = 1;
        bool defined = false;
        bool has_empty_alternative = false;
        bool may_be_empty = false;
        bool starts = false;  // can begin with a character or a token
        std::vector<Edge> edges;
        uint64_t n_leaves = 0;  // alternatives that begin with a character or end at once
        // of the search for cycles
        int index = -1;
        int low = 0;
        bool open = false;
        int component = -1;
        uint64_t n_calls = 0;  // of llama.cpp's recursive check, for one call with this rule
        uint64_t n_ways = 0;
    };

    void solve_empty_and_starts();
    void find_edges();
    void visit(int rule, int depth);
    void close_component(int rule);
    void count_ways(Rule & rule);
    bool has_seen_cycle(std::vector<int> members) const;
    [[noreturn]] void left_recursion(int rule) const;
    std::string describe(int rule) const;

    std::map<std::string, int> ids_;
    std::vector<Rule> rules_;
    std::vector<int> open_;
    int n_visited_ = 0;
    int n_components_ = 0;
    uint64_t n_calls_ = 0;
};

}  // namespace pyspec
