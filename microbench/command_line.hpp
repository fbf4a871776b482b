// The command lines of the programs: options as text, help, and refusals.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::bench {

/// First declare options, then parse once.  The variables of options must outlive parse().
class CommandLine {
 public:
  CommandLine(std::string program, const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Declares an option: `name` is "--option", or "WORD" for a required value without a name.
  void add(const std::string& name, std::string& value, const std::string& help);
  void add(const std::string& name, std::optional<std::string>& value, const std::string& help);
  /// Declares an option that takes so many values.
  void add(const std::string& name, std::size_t value_count, std::vector<std::string>& values,
           const std::string& help);
  /// Declares an option whose value may be left out: then it is `otherwise`.
  void add(const std::string& name, const std::string& otherwise, std::optional<std::string>& value,
           const std::string& help);
  void add_flag(const std::string& name, bool& value, const std::string& help);

  /// Declares a command of the program with options of its own; it lives as long as this object.
  CommandLine& add_command(const std::string& name, const std::string& description);

  /// `arguments` begins with the program's name.  Returns the text to print if help was asked for.
  /// Throws Error{invalid_argument}, which names the help to read, if they cannot be parsed.
  std::optional<std::string> parse(std::span<const char* const> arguments);

  /// Whether this command, or an option, was given; after parse().
  bool is_given() const;
  bool is_given(const std::string& option) const;

 private:
  struct Parts;
  explicit CommandLine(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::bench
