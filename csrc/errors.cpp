#include "errors.hpp"

namespace pyspec {

namespace {

std::string value_text(const ErrorValue & value) {
    if (const auto * number = std::get_if<int64_t>(&value)) {
        return std::to_string(*number);
    }
    if (const auto * number = std::get_if<double>(&value)) {
        return std::to_string(*number);
    }
    return std::get<std::string>(value);
}

}  // namespace

Error::Error(std::string kind_, Values values_) : kind(std::move(kind_)), values(std::move(values_)) {
    text_ = kind;
    for (const auto & [name, value] : values) {
        text_ += " " + name + "=" + value_text(value);
    }
}

const char * Error::what() const noexcept {
    return text_.c_str();
}

void invalid_value(const std::string & name, ErrorValue value, const std::string & allowed) {
    throw Error("InvalidValueError", {{"name", name}, {"value", std::move(value)}, {"allowed", allowed}});
}

void unsupported(const std::string & what, const std::string & why, const std::string & way_out) {
    throw Error("UnsupportedError", {{"what", what}, {"why", why}, {"way_out", way_out}});
}

void closed_error(const std::string & what) {
    throw Error("ClosedError", {{"what", what}});
}

void busy_error(const std::string & what) {
    throw Error("BusyError", {{"what", what}});
}

}  // namespace pyspec
