// What hosts change about a namespace beside its blocks, kept in a file beside its image (PATH.flashmob): its format,
// that it was deleted, blocks marked uncorrectable, features that were saved. It is written whole to a file of another
// name, synced, and renamed, so that what is read is all of an older or all of a newer state.
//
// SavedState, encode() and decode() are values and pure functions. StateKeeper: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flashmob::media {

// A host decides how many there are, and each change writes them all.
inline constexpr std::size_t kMaxSavedRanges = 4096;
inline constexpr std::size_t kMaxSavedFeatures = 1024;

struct SavedRange {
  std::uint64_t first;
  std::uint64_t blocks;
  friend bool operator==(const SavedRange&, const SavedRange&) = default;
};

// A Set Features command whose value is to outlive the device.
struct SavedFeature {
  std::uint32_t fid;
  std::uint32_t cdw11;
  std::uint32_t nsid;
  friend bool operator==(const SavedFeature&, const SavedFeature&) = default;
};

struct SavedState {
  std::uint64_t generation = 0;  // counts changes
  std::uint64_t size_bytes = 0;  // of the image that this is about
  std::uint32_t lba_bytes = 512;
  bool deleted = false;
  std::uint8_t write_protection = 0;  // as feature 84h counts; never until a power cycle
  std::array<std::uint8_t, 16> nguid{};
  std::array<std::uint8_t, 8> eui64{};
  std::array<std::uint8_t, 16> uuid{};
  std::vector<SavedRange> uncorrectable;  // ascending, none touches the next
  std::vector<SavedFeature> features;     // of the drive; in the state of its first image alone
  friend bool operator==(const SavedState&, const SavedState&) = default;
};

std::vector<std::byte> encode(const SavedState& state);
// Nothing, and why not, for anything that encode() does not make. `why` ends the sentence "PATH.flashmob: ...".
std::optional<SavedState> decode(std::span<const std::byte> bytes, std::string& why);

// What is saved beside an image; nothing where nothing is. Throws ConfigError where it cannot be read, is damaged or of
// a newer version.
std::optional<SavedState> read_saved(const std::string& image_path);

class StateKeeper {
 public:
  static std::string path_of(const std::string& image_path) { return image_path + ".flashmob"; }

  // Reads what is there. Throws ConfigError as read_saved(), and where it is about an image of another size. The
  // image's lock must be held for as long as this lives: nobody else may write.
  StateKeeper(const std::string& image_path, std::uint64_t size_bytes);

  // What the last run saved, if it did.
  const std::optional<SavedState>& loaded() const { return loaded_; }
  // What holds where nothing has been saved; before the first change().
  void set_base(const SavedState& base);
  SavedState state() const;
  // Applies `edit` and has the result on the disk before it returns. False if that fails: then nothing has changed,
  // unless the new state has its place and only its folder could not be synced. That state is what the next start
  // reads, though perhaps not after a power cut, so it holds from then on, and the next change() stores it again even
  // where it edits nothing. `holds`: whether the edited state is in force.
  bool change(const std::function<void(SavedState&)>& edit, bool* holds = nullptr);

 private:
  // Has the state in its place. Its folder is yet to be synced.
  bool store(const SavedState& state) const;

  const std::string path_;
  const std::uint64_t size_bytes_;
  std::optional<SavedState> loaded_;
  std::mutex change_mutex_;  // held for a whole change, disk included
  bool is_synced_ = true;
  mutable std::mutex mutex_;  // held to read or replace state_; never while a disk is waited for
  SavedState state_;
};

}  // namespace flashmob::media
