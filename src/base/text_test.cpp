#include "base/text.h"

#include "gtest/gtest.h"

namespace flashmob {
namespace {

TEST(Text, WhatIsPlainStaysAsItIs) {
  for (const char* text : {"", "nqn.2014-08.org.nvmexpress:uuid:1", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                           "\xC2\xA0", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF", "back\\slash"}) {
    EXPECT_TRUE(is_plain_text(text)) << text;
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Text, SizesAreInWords) {
  EXPECT_EQ(bytes_in_words(std::uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(bytes_in_words(std::uint64_t{64} << 40), "64.0 TiB");
}

TEST(Text, EverythingElseIsEscaped) {
  const struct {
    std::string_view text;
    const char* shown;
  } cases[] = {
      {"nqn.\xFF", "nqn.\\xff"},
      {"a\x1B[2Jb", "a\\x1b[2Jb"},
      {"\x7F\n", "\\x7f\\x0a"},
      {std::string_view("\0", 1), "\\x00"},
      {"\xC2\x9B", "\\xc2\\x9b"},              // a control character of two bytes
      {"\xC0\xAF", "\\xc0\\xaf"},              // too long a form
      {"\xE0\x9F\xBF", "\\xe0\\x9f\\xbf"},     // the same
      {"\xED\xA0\x80", "\\xed\\xa0\\x80"},     // half of a surrogate pair
      {"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
      {"\xF5\x80", "\\xf5\\x80"},
      {"\x80", "\\x80"},
      {"\xE2\x82", "\\xe2\\x82"},              // cut short
      {"\xE2\x82x", "\\xe2\\x82x"},
      {"\xC3\xC3\xA9", "\\xc3\xC3\xA9"},       // goes on with what follows
  };
  for (const auto& c : cases) {
    EXPECT_FALSE(is_plain_text(c.text)) << c.shown;
    EXPECT_EQ(printable(c.text), c.shown);
    EXPECT_TRUE(is_plain_text(printable(c.text)));
  }
}

}  // namespace
}  // namespace flashmob
