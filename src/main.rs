fn main() -> std::process::ExitCode {
    provisor::ui::cli::main()
}
