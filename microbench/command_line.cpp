// The one file that sees CLI11, whose headers take seconds to compile.
#include "microbench/command_line.hpp"

#include <CLI/CLI.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "microbench/words.hpp"

namespace tutti::bench {

struct CommandLine::Parts {
  std::unique_ptr<CLI::App> own = {};  // of the program; its commands are within it
  CLI::App* app = nullptr;
  std::string name = {};  // as it is called: "tutti-info plan"
  std::vector<std::unique_ptr<CommandLine>> commands = {};
};

CommandLine::CommandLine(std::string program, const std::string& description)
    : parts_(std::make_unique<Parts>()) {
  parts_->own = std::make_unique<CLI::App>(description, program);
  parts_->app = parts_->own.get();
  parts_->name = std::move(program);
}

CommandLine::CommandLine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string& name, std::string& value, const std::string& help) {
  CLI::Option* const option = parts_->app->add_option(name, value, help);
  if (!name.starts_with('-')) option->required();
}

void CommandLine::add(const std::string& name, std::optional<std::string>& value,
                      const std::string& help) {
  parts_->app->add_option_function<std::string>(
      name, [&value](const std::string& word) { value = word; }, help);
}

void CommandLine::add(const std::string& name, std::size_t value_count,
                      std::vector<std::string>& values, const std::string& help) {
  parts_->app->add_option(name, values, help)->expected(static_cast<int>(value_count));
}

void CommandLine::add(const std::string& name, const std::string& otherwise,
                      std::optional<std::string>& value, const std::string& help) {
  parts_->app
      ->add_option_function<std::string>(
          name, [&value](const std::string& word) { value = word; }, help)
      ->expected(0, 1)
      ->default_str(otherwise);
}

void CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
  parts_->app->add_flag(name, value, help);
}

CommandLine& CommandLine::add_command(const std::string& name, const std::string& description) {
  auto parts = std::make_unique<Parts>();
  parts->app = parts_->app->add_subcommand(name, description);
  parts->name = parts_->name + ' ' + name;
  // No make_unique: the constructor is private.
  parts_->commands.emplace_back(new CommandLine(std::move(parts)));
  return *parts_->commands.back();
}

std::optional<std::string> CommandLine::parse(std::span<const char* const> arguments) {
  CLI::App& app = *parts_->app;
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    std::string name = parts_->name;
    for (const auto& command : parts_->commands)
      if (command->is_given()) name = command->parts_->name;
    throw Error(ErrorCode::invalid_argument, one_line(error.what()) + "; see " + name + " --help");
  }
  return std::nullopt;
}

bool CommandLine::is_given() const {
  return parts_->app->parsed();
}
bool CommandLine::is_given(const std::string& option) const {
  return parts_->app->count(option) > 0;
}

}  // namespace tutti::bench
