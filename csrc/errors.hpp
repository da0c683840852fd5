// Errors as values: the name of a class of pyspec.errors and its keyword numbers.
// Owns the C++ exception types that cross the boundary; their wording and Python classes live in pyspec/errors.py,
// raising them there in bind_errors.cpp.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pyspec {

using ErrorValue = std::variant<int64_t, double, std::string>;

// `kind` is the class in pyspec.errors, `values` its keyword arguments.
struct Error : std::exception {
    using Values = std::vector<std::pair<std::string, ErrorValue>>;

    explicit Error(std::string kind, Values values = {});
    const char * what() const noexcept override;

    std::string kind;
    Values values;

private:
    std::string text_;
};

// An argument that cannot be used: `allowed` completes "must be ...".
[[noreturn]] void invalid_value(const std::string & name, ErrorValue value, const std::string & allowed);
[[noreturn]] void unsupported(const std::string & what, const std::string & why, const std::string & way_out = "");
[[noreturn]] void closed_error(const std::string & what);
[[noreturn]] void busy_error(const std::string & what);

}  // namespace pyspec
