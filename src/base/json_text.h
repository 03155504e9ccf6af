// JsonText writes JSON text and inserts the commas. Names and texts are written without escapes, so they must not
// contain quotes, backslashes or control characters. Thread safety: none. Throws std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kvc {

class JsonText {
 public:
  // Writes the name of a member of an object. The caller must write the value of the member next.
  JsonText& name(std::string_view name) {
    text(name);
    text_ += ": ";
    return *this;
  }
  // Write an array as open('['), its values, close(']'), and an object as open('{'), its members, close('}').
  void open(char bracket) {
    separate();
    text_ += bracket;
  }
  void close(char bracket) { text_ += bracket; }
  void number(int64_t value) {
    separate();
    text_ += std::to_string(value);
  }
  void text(std::string_view value) {
    separate();
    text_.append(1, '"').append(value).append(1, '"');
  }
  void flag(bool value) {
    separate();
    text_ += value ? "true" : "false";
  }
  void null() {
    separate();
    text_ += "null";
  }
  void member(std::string_view member, int64_t value) { name(member).number(value); }

  std::string take() { return std::move(text_); }

 private:
  // Writes a comma, except at the start of an array or object, and after the name of a member. No value ends with one
  // of the characters that are tested here.
  void separate() {
    if (!text_.empty() && text_.back() != '[' && text_.back() != '{' && text_.back() != ' ') text_ += ", ";
  }

  std::string text_;
};

}  // namespace kvc
