// Lists of chunk prefixes, as the command line has them.
#include "corpus.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.h"

namespace blend_cli {
namespace {

using Texts = std::vector<std::string>;

TEST(ChunkPrefixes, ACommaOfATextBelongsToIt) {
  EXPECT_EQ(split_chunk_prefixes("none,bos"), (Texts{"none", "bos"}));
  EXPECT_EQ(split_chunk_prefixes("text:Well, none of it,text:so,none"),
            (Texts{"text:Well, none of it", "text:so", "none"}));
  EXPECT_EQ(split_chunk_prefixes("text:a,nonesuch,bosun"), Texts{"text:a,nonesuch,bosun"});
  EXPECT_EQ(split_chunk_prefixes("text:"), Texts{"text:"});
  for (const char* bad : {"", "eos", "none,", "none,,bos", ",none", "nonebos"}) {
    EXPECT_THROW(split_chunk_prefixes(bad), CommandError) << bad;
  }
}

}  // namespace
}  // namespace blend_cli
