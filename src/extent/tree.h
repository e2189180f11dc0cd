// The names of a volume: each directory is read when it is first asked for, or all of them at once, and then stays.
//
// Names of a directory lie together in their order, so that a look-up is a binary search whatever the names are. A
// directory has one place: what would be there twice, a circle among others, is a problem and left out.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "extent/volume.h"

namespace flashmob::extent {

class Tree {
 public:
  using Item = std::uint32_t;
  static constexpr Item kRoot = 0;

  Tree(Volume& volume, const ExtentOptions& options);

  // Follows links; a link at the end, too. Throws ExtentError, with the path where it did not go on.
  Item look_up(std::string_view path);
  FileInfo info(Item item);
  std::uint64_t inode(Item item) const { return items_[item].inode; }
  // Everything, each directory before what it holds. What cannot be read becomes a problem.
  std::vector<FileInfo> files();
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Entry {
    std::uint64_t inode = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t name_at = 0;
    Item parent = kRoot;
    Item first_child = 0;
    Item child_count = 0;
    std::uint16_t depth = 0;
    std::uint8_t name_bytes = 0;
    FileKind kind = FileKind::other;
    bool has_node = false;
    bool is_listed = false;
  };

  std::string_view name(Item item) const;
  std::string path(Item item) const;
  // Reads the inode when it is first asked for.
  Entry& known(Item item);
  // Reads the directory when it is first asked for. What cannot be read is remembered with what could.
  void list(Item directory);
  void read_names(Item directory);
  void take_names(Item directory, std::vector<std::pair<std::string, std::uint64_t>>& names);
  void remember(Item item, const std::string& what);
  // Throws where it is not there.
  Item find(Item directory, std::string_view name);

  Volume& volume_;
  const ExtentOptions options_;
  std::vector<Entry> items_;
  std::string names_;
  std::set<std::uint64_t> directories_;  // inodes that have been listed
  std::map<Item, std::string> failed_;   // directories that could not be read to their end
  std::vector<std::string> problems_;
};

}  // namespace flashmob::extent
