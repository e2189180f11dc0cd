#include "extent/tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace flashmob::extent {
namespace {

constexpr std::uint16_t kMaxDepth = 2048;  // of directories; the kernel's longest path has fewer
constexpr int kMaxLinks = 40;              // on the way of one look-up, as the kernel has it
constexpr std::size_t kMaxProblems = 1000;
constexpr std::uint64_t kMaxPathBytes = std::uint64_t{4} << 30;  // of one listing

// What is before and what is left to be looked up, the next part last.
void push_parts(std::vector<std::string>& pending, std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  pending.insert(pending.end(), parts.rbegin(), parts.rend());
}

}  // namespace

Tree::Tree(Volume& volume, const ExtentOptions& options) : volume_(volume), options_(options) {
  Entry root;
  root.inode = volume.root();
  items_.push_back(root);
}

std::string_view Tree::name(Item item) const {
  return std::string_view(names_).substr(items_[item].name_at, items_[item].name_bytes);
}

std::string Tree::path(Item item) const {
  if (item == kRoot) return "/";
  std::vector<Item> way;
  for (Item at = item; at != kRoot; at = items_[at].parent) way.push_back(at);
  std::string text;
  for (std::size_t i = way.size(); i-- > 0;) text.append("/").append(name(way[i]));
  return text;
}

Tree::Entry& Tree::known(Item item) {
  Entry& entry = items_[item];
  if (entry.has_node) return entry;
  const Node node = volume_.node(entry.inode);
  entry.kind = node.kind;
  entry.size_bytes = node.size_bytes;
  entry.has_node = true;
  return entry;
}

void Tree::remember(Item item, const std::string& what) {
  if (problems_.size() < kMaxProblems) problems_.push_back(printable(path(item)) + ": " + what);
}

void Tree::list(Item directory) {
  if (items_[directory].is_listed) return;
  items_[directory].is_listed = true;
  try {
    read_names(directory);
  } catch (const ExtentError& error) {
    failed_.emplace(directory, error.what());
  }
}

void Tree::read_names(Item directory) {
  const std::uint64_t inode = items_[directory].inode;
  if (!directories_.insert(inode).second)
    throw ExtentError("this directory, inode " + std::to_string(inode) +
                      ", has another name already; check the file system");
  if (items_[directory].depth >= kMaxDepth)
    throw ExtentError("it lies deeper than " + std::to_string(kMaxDepth) + " directories, where nothing is read");
  std::vector<std::pair<std::string, std::uint64_t>> names;
  const auto visit = [&](std::string_view text, std::uint64_t child) {
    if (items_.size() + names.size() >= std::min<std::uint64_t>(options_.max_files, 0xFFFFFFF0))
      throw ExtentError("the file system has more than " + std::to_string(options_.max_files) +
                        " files, which is the limit");
    names.emplace_back(text, child);
  };
  try {
    volume_.list(inode, visit);
  } catch (const ExtentError&) {
    take_names(directory, names);
    throw;
  }
  take_names(directory, names);
}

void Tree::take_names(Item directory, std::vector<std::pair<std::string, std::uint64_t>>& names) {
  std::sort(names.begin(), names.end());
  const std::size_t before = names.size();
  names.erase(std::unique(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
              names.end());
  items_[directory].first_child = static_cast<Item>(items_.size());
  items_[directory].child_count = static_cast<Item>(names.size());
  for (const auto& [text, inode] : names) {
    Entry entry;
    entry.inode = inode;
    entry.parent = directory;
    entry.depth = static_cast<std::uint16_t>(items_[directory].depth + 1);
    entry.name_at = names_.size();
    entry.name_bytes = static_cast<std::uint8_t>(text.size());
    names_ += text;
    items_.push_back(entry);
  }
  if (names.size() != before) throw ExtentError("the directory has a name twice; check the file system");
}

Tree::Item Tree::find(Item directory, std::string_view wanted) {
  list(directory);
  const Entry& entry = items_[directory];
  const auto begin = items_.begin() + entry.first_child;
  const auto end = begin + entry.child_count;
  const auto found = std::lower_bound(begin, end, wanted, [this](const Entry& one, std::string_view text) {
    return std::string_view(names_).substr(one.name_at, one.name_bytes) < text;
  });
  if (found != end && name(static_cast<Item>(found - items_.begin())) == wanted)
    return static_cast<Item>(found - items_.begin());
  if (const auto failed = failed_.find(directory); failed != failed_.end())
    throw ExtentError(printable(path(directory)) + ": " + failed->second);
  throw ExtentError(printable(path(directory)) + ": holds no " + printable(wanted) +
                    "; without a path, all that there is is listed");
}

Tree::Item Tree::look_up(std::string_view wanted) {
  std::vector<std::string> pending;
  push_parts(pending, wanted);
  Item at = kRoot;
  for (int links = 0; !pending.empty();) {
    const std::string part = std::move(pending.back());
    pending.pop_back();
    if (part == ".") continue;
    if (part == "..") {
      at = items_[at].parent;
      continue;
    }
    if (known(at).kind != FileKind::directory)
      throw ExtentError(printable(path(at)) + ": is no directory, and cannot hold " + printable(part));
    const Item child = find(at, part);
    try {
      if (known(child).kind != FileKind::link) {
        at = child;
        continue;
      }
      if (++links > kMaxLinks) throw ExtentError("is a link of a circle; name the file itself");
      const std::string target = volume_.link(items_[child].inode);
      if (target.starts_with('/')) at = kRoot;
      push_parts(pending, target);
    } catch (const ExtentError& error) {
      throw ExtentError(printable(path(child)) + ": " + error.what());
    }
  }
  known(at);
  return at;
}

FileInfo Tree::info(Item item) {
  const Entry& entry = known(item);
  return {path(item), entry.kind, entry.inode, entry.size_bytes};
}

std::vector<FileInfo> Tree::files() {
  problems_.clear();
  std::vector<FileInfo> out;
  std::uint64_t path_bytes = 0;
  std::vector<Item> pending{kRoot};
  while (!pending.empty()) {
    const Item item = pending.back();
    pending.pop_back();
    try {
      known(item);
    } catch (const ExtentError& error) {
      remember(item, error.what());
      continue;
    }
    out.push_back(info(item));
    path_bytes += out.back().path.size();
    if (path_bytes > kMaxPathBytes)
      throw ExtentError("the paths of all files together are longer than 4 GiB, which is the limit");
    if (items_[item].kind != FileKind::directory) continue;
    list(item);
    if (const auto failed = failed_.find(item); failed != failed_.end()) remember(item, failed->second);
    const std::size_t first = pending.size();
    pending.resize(first + items_[item].child_count);
    std::iota(pending.rbegin(), pending.rbegin() + items_[item].child_count, items_[item].first_child);
  }
  return out;
}

}  // namespace flashmob::extent
