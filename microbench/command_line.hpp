// The command lines of the programs: their options as text, their help, and what is wrong with
// them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tutti::bench {

/// Declare options, then parse once.  What is bound must outlive parse().
class CommandLine {
 public:
  CommandLine(std::string program, const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// `name` is "--option", or "WORD" for one without a name, which is then required.
  void add(const std::string& name, std::string& value, const std::string& help);
  void add(const std::string& name, std::optional<std::string>& value, const std::string& help);
  void add_flag(const std::string& name, bool& value, const std::string& help);

  /// A command of the program with options of its own; lives as long as this.
  CommandLine& add_command(const std::string& name, const std::string& description);

  /// `arguments` begins with the program's name.  Returns the text to print if help was asked for.
  /// Throws Error{invalid_argument}, which names the help to read, if they cannot be parsed.
  std::optional<std::string> parse(std::span<const char* const> arguments);

  /// After parse(): whether this command, or that option, was there.
  bool is_given() const;
  bool is_given(const std::string& option) const;

 private:
  struct Parts;
  explicit CommandLine(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::bench
