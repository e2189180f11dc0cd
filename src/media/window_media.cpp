#include "media/window_media.h"

#include "base/check.h"

namespace flashmob::media {

WindowMedia::WindowMedia(Media& of, std::uint64_t first_byte, std::uint64_t size_bytes, bool writable)
    : Media(size_bytes, of.base() == nullptr ? nullptr : of.base() + first_byte),
      of_(of),
      first_byte_(first_byte),
      writable_(writable) {
  FLASHMOB_CHECK(first_byte <= of.size_bytes() && size_bytes <= of.size_bytes() - first_byte);
}

std::uint64_t WindowMedia::at(std::uint64_t offset, std::uint64_t bytes) const {
  FLASHMOB_CHECK(offset <= size_bytes() && bytes <= size_bytes() - offset);
  return first_byte_ + offset;
}

void WindowMedia::hold(std::uint64_t offset, std::uint64_t bytes) { of_.hold(at(offset, bytes), bytes); }

void WindowMedia::let_go(std::uint64_t offset, std::uint64_t bytes) { of_.let_go(at(offset, bytes), bytes); }

bool WindowMedia::read(std::uint64_t offset, std::span<std::byte> out) { return of_.read(at(offset, out.size()), out); }

bool WindowMedia::write(std::uint64_t offset, std::span<const std::byte> in) {
  return writable() && of_.write(at(offset, in.size()), in);
}

bool WindowMedia::deallocate(std::uint64_t offset, std::uint64_t bytes) {
  return writable() && of_.deallocate(at(offset, bytes), bytes);
}

bool WindowMedia::discard(std::uint64_t offset, std::uint64_t bytes) {
  return writable() && of_.discard(at(offset, bytes), bytes);
}

bool WindowMedia::sync(std::uint64_t offset, std::uint64_t bytes) { return of_.sync(at(offset, bytes), bytes); }

std::string WindowMedia::describe() const {
  return of_.describe() + ", bytes " + std::to_string(first_byte_) + " to " +
         std::to_string(first_byte_ + size_bytes());
}

}  // namespace flashmob::media
