#include "vfio/capabilities.h"

#include <gtest/gtest.h>

namespace flashmob::vfio {
namespace {

TEST(Capabilities, WhatIsWrittenIsReadAgain) {
  const Capabilities mine{.max_message_fds = 16,
                          .max_data_transfer_bytes = 1 << 20,
                          .max_dma_maps = 1000,
                          .page_sizes = 4096,
                          .write_multiple = true};
  EXPECT_EQ(parse_capabilities(format_capabilities(mine)), mine);
  EXPECT_EQ(parse_capabilities(format_capabilities(Capabilities{})), Capabilities{});
  EXPECT_EQ(parse_capabilities(format_capabilities(mine) + '\0'), mine);
}

TEST(Capabilities, NothingMeansTheDefaults) {
  for (const std::string_view text : {"", "{}", " { } ", R"({"capabilities":{}})"})
    EXPECT_EQ(parse_capabilities(text), Capabilities{}) << text;
  EXPECT_EQ(parse_capabilities(std::string_view("\0\0", 2)), Capabilities{});
}

TEST(Capabilities, WhatIsUnknownIsSkipped) {
  const auto got = parse_capabilities(
      R"({"other": [1, -2.5e3, "x\"]}", null, {}], "capabilities": {"migration": {"pgsize": 4096,
          "max_bitmap_size": 268435456}, "max_msg_fds": 8, "twin_socket": {"supported": true}, "write_multiple": false}})");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->max_message_fds, 8u);
  EXPECT_FALSE(got->write_multiple);
}

TEST(Capabilities, WhatIsMalformedIsRefused) {
  for (const std::string_view text :
       {"{", "[]", "1", "x", R"({"capabilities":1})", R"({"capabilities":{"max_msg_fds":"8"}})",
        R"({"capabilities":{"max_msg_fds":-1}})", R"({"capabilities":{"max_msg_fds":1.5}})",
        R"({"capabilities":{"max_msg_fds":99999999999999999999}})", R"({"capabilities":{"write_multiple":1}})",
        R"({"capabilities":{}} x)", R"({"a":"unterminated)", R"({"a":})", R"({"a" 1})", R"({"a":1,})", R"({"a":"\)"})
    EXPECT_FALSE(parse_capabilities(text)) << text;
}

TEST(Capabilities, DeepNestingIsRefused) {
  const std::string deep = R"({"a":)" + std::string(100'000, '[');
  EXPECT_FALSE(parse_capabilities(deep));
}

}  // namespace
}  // namespace flashmob::vfio
