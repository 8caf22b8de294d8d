//! What runs when the owner logs in, opens a shell, enters a folder, starts a program or an editor.

use super::RiskKind::{Editor, Startup};
use super::Rule;

pub(super) const RULES: &[Rule] = &[
    Rule(
        Startup,
        ".envrc .envrc.* .direnvrc direnvrc .direnv/ .autoenv* .autoenv/",
        "direnv or autoenv runs it on entering the folder",
    ),
    Rule(
        Startup,
        ".env .env.*",
        "shells and tools load it, and variables such as PATH and LD_PRELOAD decide what runs",
    ),
    Rule(
        Startup,
        "mise.toml mise.local.toml .mise.toml .mise.local.toml .mise/ .rtx.toml",
        "mise runs hooks and sets variables on entering the folder",
    ),
    Rule(
        Startup,
        "shell.nix devenv.nix devenv.yaml devenv.local.nix .devenv/ devbox.json",
        "it is run on entering its shell",
    ),
    // One rule, whoever obeys the file: which version of an interpreter or compiler runs is the owner's to say.
    Rule(
        Startup,
        ".tool-versions .*-version .nvmrc .jvmrc .dvmrc .yvmrc .sdkmanrc .ruby-gemset \
         rust-toolchain rust-toolchain.toml",
        "it decides which version of a program runs, and may have it downloaded",
    ),
    Rule(
        Startup,
        ".bashrc .bash_profile .bash_login .bash_aliases .bash_completion .profile .zshrc .zshenv .zprofile .zlogin \
         .kshrc .mkshrc .cshrc .tcshrc .login .xonshrc config.fish .bashrc.d/ .zshrc.d/ .zsh/ .oh-my-zsh/ profile.d/ \
         fish/conf.d/ fish/functions/ fish/completions/ .config/fish/",
        "a shell runs it at its start",
    ),
    Rule(Startup, ".bash_logout .zlogout .logout", "a shell runs it at its end"),
    Rule(Startup, ".inputrc", "it binds keys of the shell to what they type"),
    Rule(
        Startup,
        ".xprofile .xinitrc .xsession .xsessionrc .xserverrc .pam_environment .vnc/ environment.d/ .config/autostart/",
        "a desktop session or a login runs it at its start",
    ),
    Rule(Startup, "*.desktop dbus-1/services/", "a desktop runs the program it names"),
    Rule(Startup, "systemd/user/ *.service *.timer", "systemd runs the program it names"),
    Rule(Startup, "supervisord.conf", "supervisor runs the programs it names"),
    Rule(
        Startup,
        "crontab .crontab anacrontab crontabs/ cron.d/ cron.hourly/ cron.daily/ cron.weekly/ cron.monthly/",
        "cron runs the commands it names",
    ),
    Rule(
        Startup,
        ".ssh/ authorized_keys ssh_config.d/ sshd_config.d/",
        "ssh runs commands from it, or lets in whom its keys name",
    ),
    Rule(Startup, ".gnupg/", "gpg runs the programs that its configuration names"),
    Rule(
        Startup,
        ".aws/ .azure/ .docker/ .kube/ .ansible/ .terraform.d/ .terraformrc",
        "its tool runs the programs that its configuration names, to log in among others",
    ),
    Rule(
        Startup,
        "ansible.cfg .ansible.cfg",
        "ansible loads the plug-ins and runs the programs it names",
    ),
    Rule(Startup, ".htaccess .user.ini", "a web server takes from it what it runs"),
    Rule(
        Startup,
        ".local/bin/ .bun/bin/ .deno/bin/ .dotnet/tools/ .foundry/bin/ .krew/bin/ .npm-global/bin/ .pixi/bin/ \
         .composer/vendor/bin/ .asdf/ .ghcup/ .nodenv/ .nvm/ .opam/ .pyenv/ .rbenv/ .rustup/ .rvm/ .sdkman/ .volta/ \
         ~/bin/ ~/sbin/ ~/go/bin/",
        "it lies where a shell looks for commands",
    ),
    Rule(Startup, "sitecustomize.py usercustomize.py *.pth", "python runs it at every start"),
    Rule(
        Startup,
        ".pythonrc .pythonrc.py .pythonstartup .pdbrc .pdbrc.py .ipython/ .jupyter/",
        "python runs it when its shell, debugger or notebook starts",
    ),
    Rule(
        Startup,
        ".irbrc .pryrc .rdbgrc .byebugrc .iex.exs .erlang .rprofile .renviron .julia/ .octaverc .ghci .ocamlinit .sbclrc \
         .guile .racketrc .perldb .psqlrc .sqliterc .my.cnf .mongorc.js .mongoshrc.js .gnuplot",
        "an interpreter runs it at its start",
    ),
    Rule(Startup, ".gdbinit .gdbearlyinit .lldbinit", "the debugger runs it at its start"),
    Rule(Startup, ".tmux.conf .tmux/ .screenrc", "a terminal runs the commands in it"),
    Rule(
        Startup,
        ".lesskey .lessfilter .mailcap .forward .procmailrc .fetchmailrc .muttrc .mutt/ .msmtprc .curlrc .wgetrc .netrc \
         .ackrc .ripgreprc .ctags .ctags.d/ .asoundrc .xbindkeysrc",
        "its program takes commands or settings from it at every start",
    ),
    // Last, so that what is known better has its own reason.
    Rule(
        Startup,
        ".config/ .local/lib/ .local/share/ ~/.",
        "programs of your account take code, commands or settings from such places",
    ),
    Rule(
        Editor,
        ".vscode/ .vscode-server/ .config/code/ .config/vscodium/",
        "tasks, launches and settings here name programs that the editor runs",
    ),
    Rule(
        Editor,
        "*.code-workspace *.sublime-project *.kateproject",
        "its settings and tasks name programs that the editor runs",
    ),
    Rule(
        Editor,
        ".idea/",
        "run configurations and settings here name programs that the editor runs",
    ),
    Rule(Editor, ".run/ .fleet/", "run configurations that the editor offers to run"),
    Rule(
        Editor,
        ".zed/ .helix/ .vs/ .nova/ .theia/ .idx/ .config/zed/ .config/helix/ .config/lapce/ .config/kak/ .config/micro/ \
         .config/sublime-text/ .config/jetbrains/",
        "settings and tasks here name programs that the editor runs",
    ),
    Rule(
        Editor,
        ".devcontainer/ .devcontainer.json",
        "it names a container and commands that run in it and on the host",
    ),
    Rule(
        Editor,
        ".gitpod.yml .gitpod.dockerfile .replit replit.nix",
        "it names commands that run when the workspace opens",
    ),
    Rule(
        Editor,
        ".exrc .vimrc .vimrc.* .gvimrc _vimrc .lvimrc* .ideavimrc .vim/ .config/vim/ .vimspector.json",
        "vim runs it when it starts or opens a file of the folder",
    ),
    Rule(
        Editor,
        ".nvimrc .nvim.lua .lazy.lua .neoconf.json .nvim/ .config/nvim/ .local/share/nvim/",
        "neovim runs it when it starts or opens a file of the folder",
    ),
    Rule(
        Editor,
        ".dir-locals.el .dir-locals-2.el .emacs .emacs.el .emacs.d/ .config/emacs/ .config/doom/ .doom.d/ .spacemacs \
         .spacemacs.d/",
        "emacs evaluates it when it starts or opens a file of the folder",
    ),
    Rule(Editor, ".nanorc .kakrc", "the editor takes commands from it at its start"),
    Rule(Editor, "*.sublime-build", "it names a program that the editor runs"),
    Rule(Editor, ".clangd .ccls", "it tells the language server which compiler to run"),
    Rule(Editor, "compile_commands.json", "language servers run the compilers it names"),
    Rule(Editor, "hie.yaml .merlin .solargraph.yml", "the language server runs what it names"),
];
