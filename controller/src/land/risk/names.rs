//! Paths that say by themselves what a file does. Data: one rule a line, with its reason.

use super::RiskKind::{Agent, Build, Ci, Editor, Generated, Git, IgnoreRules, Install, Startup};
use super::{Lower, Risk, RiskKind};
use crate::land::changeset::{Change, Node};
use landbox_shared::path::RelPath;

/// Which paths a rule means. All of it in lower case, at any depth.
enum Path {
    /// Files of this name.
    Name(&'static str),
    /// Files whose name ends so.
    End(&'static str),
    /// Files whose name begins so.
    Start(&'static str),
    /// Whatever lies in a folder of this name or names.
    In(&'static str),
}

use Path::{End, In, Name, Start};

/// A rule: these paths, this kind, this reason.
struct Rule(RiskKind, Path, &'static str);

const RULES: &[Rule] = &[
    Rule(Git, In(".git"), "git runs hooks, and the programs its configuration names"),
    Rule(Git, Name(".git"), "it tells git where its hooks and configuration are"),
    Rule(
        Git,
        Name(".gitmodules"),
        "it names repositories that git fetches, and commands to update them",
    ),
    Rule(Git, Name(".gitconfig"), "git runs the programs its configuration names"),
    Rule(Git, In(".githooks"), "git runs hooks from here where it was told to"),
    Rule(Git, In(".husky"), "husky makes these git's hooks"),
    Rule(Git, Name(".pre-commit-config.yaml"), "pre-commit runs what it names at every commit"),
    Rule(Git, Name(".pre-commit-hooks.yaml"), "pre-commit runs what it names at every commit"),
    Rule(Git, Start("lefthook."), "lefthook runs what it names as git's hooks"),
    Rule(Git, Start(".lefthook."), "lefthook runs what it names as git's hooks"),
    Rule(Git, Start(".huskyrc"), "husky runs what it names as git's hooks"),
    Rule(Git, Start(".lintstagedrc"), "lint-staged runs what it names at every commit"),
    Rule(Git, Name(".hgrc"), "mercurial runs the programs its configuration names"),
    Rule(Git, In(".hg"), "mercurial runs hooks, and the programs its configuration names"),
    Rule(Git, In(".svn"), "subversion keeps its own files here"),
    Rule(Git, In(".jj"), "jujutsu runs the programs its configuration names"),
    Rule(Git, Name("pre-commit"), "a git hook by its name"),
    Rule(Git, Name("post-checkout"), "a git hook by its name"),
    Rule(Git, Name("post-merge"), "a git hook by its name"),
    Rule(Git, Name("post-commit"), "a git hook by its name"),
    Rule(Git, Name("pre-push"), "a git hook by its name"),
    Rule(Git, Name("commit-msg"), "a git hook by its name"),
    Rule(Git, Name("prepare-commit-msg"), "a git hook by its name"),
    Rule(Git, Name("pre-rebase"), "a git hook by its name"),
    Rule(Git, Name("fsmonitor-watchman"), "a git hook by its name"),
    Rule(Startup, Name(".envrc"), "direnv runs it on entering the folder"),
    Rule(Startup, Start(".envrc."), "direnv runs it on entering the folder"),
    Rule(Startup, Name(".autoenv"), "autoenv runs it on entering the folder"),
    Rule(Startup, Name(".autoenv.zsh"), "autoenv runs it on entering the folder"),
    Rule(
        Startup,
        Name(".env"),
        "shells and tools load it, and variables such as PATH and LD_PRELOAD decide what runs",
    ),
    Rule(
        Startup,
        Start(".env."),
        "shells and tools load it, and variables such as PATH and LD_PRELOAD decide what runs",
    ),
    Rule(Startup, Name("mise.toml"), "mise runs hooks and sets variables on entering the folder"),
    Rule(Startup, Name(".mise.toml"), "mise runs hooks and sets variables on entering the folder"),
    Rule(Startup, In(".mise"), "mise runs hooks and tasks from here"),
    Rule(Startup, Name(".tool-versions"), "it decides which interpreters run"),
    Rule(Startup, Name(".bashrc"), "a shell runs it at its start"),
    Rule(Startup, Name(".bash_profile"), "a shell runs it at its start"),
    Rule(Startup, Name(".bash_login"), "a shell runs it at its start"),
    Rule(Startup, Name(".bash_logout"), "a shell runs it at its end"),
    Rule(Startup, Name(".bash_aliases"), "a shell runs it at its start"),
    Rule(Startup, Name(".profile"), "a shell runs it at its start"),
    Rule(Startup, Name(".zshrc"), "a shell runs it at its start"),
    Rule(Startup, Name(".zshenv"), "a shell runs it at its start"),
    Rule(Startup, Name(".zprofile"), "a shell runs it at its start"),
    Rule(Startup, Name(".zlogin"), "a shell runs it at its start"),
    Rule(Startup, Name(".zlogout"), "a shell runs it at its end"),
    Rule(Startup, Name(".kshrc"), "a shell runs it at its start"),
    Rule(Startup, Name(".cshrc"), "a shell runs it at its start"),
    Rule(Startup, Name(".tcshrc"), "a shell runs it at its start"),
    Rule(Startup, Name(".login"), "a shell runs it at its start"),
    Rule(Startup, Name(".xprofile"), "a desktop session runs it at its start"),
    Rule(Startup, Name(".xinitrc"), "a desktop session runs it at its start"),
    Rule(Startup, Name(".xsession"), "a desktop session runs it at its start"),
    Rule(Startup, Name(".inputrc"), "it binds keys of the shell to what they type"),
    Rule(Startup, In("fish"), "fish runs configuration and functions from a folder of this name"),
    Rule(Startup, In(".config/autostart"), "a desktop session runs it at its start"),
    Rule(Startup, In("systemd/user"), "systemd runs the services it names"),
    Rule(Startup, End(".desktop"), "a desktop runs the program it names"),
    Rule(Startup, Name("sitecustomize.py"), "python runs it at every start"),
    Rule(Startup, Name("usercustomize.py"), "python runs it at every start"),
    Rule(Startup, End(".pth"), "python runs lines of it at every start"),
    Rule(Startup, Name(".pythonrc"), "python runs it at its start"),
    Rule(Startup, Name(".pdbrc"), "python's debugger runs it at its start"),
    Rule(Startup, Name(".pryrc"), "ruby's shell runs it at its start"),
    Rule(Startup, Name(".irbrc"), "ruby's shell runs it at its start"),
    Rule(Startup, Name(".rprofile"), "R runs it at its start"),
    Rule(Startup, Name(".iex.exs"), "elixir's shell runs it at its start"),
    Rule(Startup, Name(".gdbinit"), "the debugger runs it at its start"),
    Rule(Startup, Name(".lldbinit"), "the debugger runs it at its start"),
    Rule(Startup, Name(".tmux.conf"), "tmux runs the commands in it"),
    Rule(Startup, Name(".screenrc"), "screen runs the commands in it"),
    Rule(Startup, Name("shell.nix"), "nix runs it on entering its shell"),
    Rule(Startup, Name("devenv.nix"), "devenv runs it on entering its shell"),
    Rule(
        Editor,
        In(".vscode"),
        "tasks, launches and settings here name programs that the editor runs",
    ),
    Rule(
        Editor,
        End(".code-workspace"),
        "its settings and tasks name programs that the editor runs",
    ),
    Rule(
        Editor,
        In(".idea"),
        "run configurations and settings here name programs that the editor runs",
    ),
    Rule(Editor, In(".run"), "run configurations that the editor offers to run"),
    Rule(Editor, In(".fleet"), "run configurations that the editor offers to run"),
    Rule(Editor, In(".zed"), "settings and tasks here name programs that the editor runs"),
    Rule(Editor, In(".helix"), "its languages name programs that the editor runs"),
    Rule(Editor, In(".vs"), "settings here name programs that the editor runs"),
    Rule(Editor, In(".nova"), "tasks here name programs that the editor runs"),
    Rule(
        Editor,
        In(".devcontainer"),
        "it names a container and commands that run in it and on the host",
    ),
    Rule(
        Editor,
        Name(".devcontainer.json"),
        "it names a container and commands that run in it and on the host",
    ),
    Rule(Editor, In(".theia"), "tasks here name programs that the editor runs"),
    Rule(Editor, Name(".gitpod.yml"), "it names commands that run when the workspace opens"),
    Rule(Editor, Name(".exrc"), "vi runs it when it starts in the folder"),
    Rule(Editor, Name(".vimrc"), "vim runs it at its start"),
    Rule(Editor, Name(".gvimrc"), "vim runs it at its start"),
    Rule(Editor, Name(".nvimrc"), "neovim runs it when it starts in the folder"),
    Rule(Editor, Name(".nvim.lua"), "neovim runs it when it starts in the folder"),
    Rule(Editor, Start(".lvimrc"), "vim runs it when it opens a file of the folder"),
    Rule(Editor, Name(".dir-locals.el"), "emacs evaluates it when it opens a file of the folder"),
    Rule(Editor, Name(".dir-locals-2.el"), "emacs evaluates it when it opens a file of the folder"),
    Rule(Editor, Name(".emacs"), "emacs runs it at its start"),
    Rule(Editor, In(".emacs.d"), "emacs runs it at its start"),
    Rule(Editor, End(".sublime-project"), "its build systems name programs that the editor runs"),
    Rule(Editor, End(".sublime-build"), "it names a program that the editor runs"),
    Rule(Editor, Name(".clangd"), "it tells the language server which compiler to run"),
    Rule(Editor, Name("compile_commands.json"), "language servers run the compilers it names"),
    Rule(Agent, In(".claude"), "hooks, commands and permissions of Claude Code"),
    Rule(Agent, Name(".claude.json"), "servers and permissions of Claude Code"),
    Rule(Agent, Name("claude.md"), "instructions that Claude Code obeys"),
    Rule(Agent, Name("claude.local.md"), "instructions that Claude Code obeys"),
    Rule(Agent, Name(".mcp.json"), "it names servers that a CLI starts"),
    Rule(Agent, Name("mcp.json"), "it names servers that a CLI starts"),
    Rule(Agent, In(".mcp"), "it names servers that a CLI starts"),
    Rule(Agent, Name("agents.md"), "instructions that coding CLIs obey"),
    Rule(Agent, Name("agents.override.md"), "instructions that coding CLIs obey"),
    Rule(Agent, Name("agent.md"), "instructions that coding CLIs obey"),
    Rule(Agent, In(".agents"), "instructions and skills that coding CLIs obey"),
    Rule(Agent, In(".agent"), "instructions and skills that coding CLIs obey"),
    Rule(Agent, In(".codex"), "configuration, hooks and servers of Codex"),
    Rule(Agent, In(".gemini"), "settings, hooks and servers of Gemini"),
    Rule(Agent, Name("gemini.md"), "instructions that Gemini obeys"),
    Rule(Agent, Name(".geminiignore"), "it decides what Gemini sees"),
    Rule(Agent, Name("opencode.json"), "commands, plug-ins and servers of OpenCode"),
    Rule(Agent, Name("opencode.jsonc"), "commands, plug-ins and servers of OpenCode"),
    Rule(Agent, In(".opencode"), "commands, plug-ins and servers of OpenCode"),
    Rule(Agent, In(".cursor"), "rules, hooks and servers of Cursor"),
    Rule(Agent, Name(".cursorrules"), "instructions that Cursor obeys"),
    Rule(Agent, In(".windsurf"), "rules, hooks and servers of Windsurf"),
    Rule(Agent, Name(".windsurfrules"), "instructions that Windsurf obeys"),
    Rule(Agent, In(".clinerules"), "instructions that Cline obeys"),
    Rule(Agent, Name(".clinerules"), "instructions that Cline obeys"),
    Rule(Agent, In(".roo"), "rules and servers of Roo"),
    Rule(Agent, Start(".roo"), "rules and modes of Roo"),
    Rule(Agent, In(".kiro"), "hooks and servers of Kiro"),
    Rule(Agent, In(".qwen"), "settings and servers of Qwen"),
    Rule(Agent, In(".amazonq"), "rules and servers of Amazon Q"),
    Rule(Agent, In(".junie"), "instructions that Junie obeys"),
    Rule(Agent, In(".continue"), "settings and servers of Continue"),
    Rule(Agent, In(".crush"), "settings and servers of Crush"),
    Rule(Agent, Name("crush.json"), "settings and servers of Crush"),
    Rule(Agent, Name(".goosehints"), "instructions that Goose obeys"),
    Rule(Agent, Start(".aider"), "commands and instructions of Aider"),
    Rule(Agent, Name("copilot-instructions.md"), "instructions that Copilot obeys"),
    Rule(Agent, In(".github/instructions"), "instructions that Copilot obeys"),
    Rule(Agent, In(".github/prompts"), "instructions that Copilot obeys"),
    Rule(Agent, In(".github/agents"), "instructions that Copilot obeys"),
    Rule(Agent, In(".github/hooks"), "hooks that Copilot runs"),
    Rule(Agent, Name("bots.json"), "it configures what runs, and what sandbox it gets"),
    Rule(Ci, In(".github/workflows"), "GitHub runs it with the repository's secrets"),
    Rule(Ci, In(".github/actions"), "GitHub runs it with the repository's secrets"),
    Rule(Ci, Name("action.yml"), "GitHub runs it as an action"),
    Rule(Ci, Name("action.yaml"), "GitHub runs it as an action"),
    Rule(Ci, In(".forgejo"), "Forgejo runs its workflows"),
    Rule(Ci, In(".gitea"), "Gitea runs its workflows"),
    Rule(Ci, Name(".gitlab-ci.yml"), "GitLab runs it"),
    Rule(Ci, End(".gitlab-ci.yml"), "GitLab runs it"),
    Rule(Ci, In(".gitlab"), "GitLab runs what is included from here"),
    Rule(Ci, In(".circleci"), "CircleCI runs it"),
    Rule(Ci, In(".buildkite"), "Buildkite runs it"),
    Rule(Ci, In(".woodpecker"), "Woodpecker runs it"),
    Rule(Ci, Start(".woodpecker."), "Woodpecker runs it"),
    Rule(Ci, Start(".drone."), "Drone runs it"),
    Rule(Ci, In(".tekton"), "Tekton runs it"),
    Rule(Ci, In(".semaphore"), "Semaphore runs it"),
    Rule(Ci, In(".teamcity"), "TeamCity runs it"),
    Rule(Ci, Start("jenkinsfile"), "Jenkins runs it"),
    Rule(Ci, Start("azure-pipelines"), "Azure runs it"),
    Rule(Ci, In(".azure-pipelines"), "Azure runs it"),
    Rule(Ci, Name("bitbucket-pipelines.yml"), "Bitbucket runs it"),
    Rule(Ci, Name(".travis.yml"), "Travis runs it"),
    Rule(Ci, Name("appveyor.yml"), "AppVeyor runs it"),
    Rule(Ci, Name(".appveyor.yml"), "AppVeyor runs it"),
    Rule(Ci, Name(".cirrus.yml"), "Cirrus runs it"),
    Rule(Ci, Name(".cirrus.star"), "Cirrus runs it"),
    Rule(Ci, Start("cloudbuild."), "Google Cloud Build runs it"),
    Rule(Ci, Name("buildspec.yml"), "AWS CodeBuild runs it"),
    Rule(Ci, Name("netlify.toml"), "Netlify runs the build it names"),
    Rule(Ci, Name("vercel.json"), "Vercel runs the build it names"),
    Rule(Ci, Name(".goreleaser.yml"), "a release runs the commands it names"),
    Rule(Ci, Name(".goreleaser.yaml"), "a release runs the commands it names"),
    Rule(Install, Name(".npmrc"), "npm takes registries, tokens and what to run from it"),
    Rule(Install, Start(".yarnrc"), "yarn takes registries and the program it starts as from it"),
    Rule(Install, In(".yarn"), "yarn runs releases and plug-ins from here"),
    Rule(Install, Start(".pnp."), "node loads it before every program of the project"),
    Rule(Install, Start(".pnpmfile."), "pnpm runs it at every install"),
    Rule(Install, Name("pnpmfile.cjs"), "pnpm runs it at every install"),
    Rule(
        Install,
        Name("pnpm-workspace.yaml"),
        "it decides which packages may run scripts at install",
    ),
    Rule(Install, Name("bunfig.toml"), "bun takes registries and code to load first from it"),
    Rule(Install, Name("binding.gyp"), "npm builds it at every install"),
    Rule(Install, Name("setup.py"), "pip runs it at installation"),
    Rule(Install, Name("pip.conf"), "pip takes registries from it"),
    Rule(Install, Name("pip.ini"), "pip takes registries from it"),
    Rule(Install, Name(".pypirc"), "uploads take registries and tokens from it"),
    Rule(Install, Name("uv.toml"), "uv takes registries from it"),
    Rule(Install, Name(".condarc"), "conda takes registries from it"),
    Rule(Install, Name("build.rs"), "cargo runs it at every build"),
    Rule(Install, In(".cargo"), "cargo takes registries, runners and wrappers from it"),
    Rule(Install, Name("rust-toolchain.toml"), "it decides which compiler runs"),
    Rule(Install, Name("rust-toolchain"), "it decides which compiler runs"),
    Rule(Install, Name("gemfile"), "bundler evaluates it"),
    Rule(Install, End(".gemspec"), "bundler evaluates it"),
    Rule(Install, Name(".gemrc"), "gem takes registries from it"),
    Rule(Install, In(".bundle"), "bundler takes its settings from it"),
    Rule(Install, Name("extconf.rb"), "gem runs it at installation"),
    Rule(Install, Name("podfile"), "CocoaPods evaluates it"),
    Rule(Install, End(".podspec"), "CocoaPods evaluates it"),
    Rule(Install, Name("brewfile"), "brew evaluates it"),
    Rule(Install, Name("package.swift"), "swift evaluates it"),
    Rule(Install, Name("conanfile.py"), "conan runs it"),
    Rule(Install, Name("nuget.config"), "nuget takes registries from it"),
    Rule(Install, Name("go.work"), "it replaces code of other modules"),
    Rule(Install, End(".install"), "pacman runs it at installation"),
    Rule(Install, Name("pkgbuild"), "makepkg runs it"),
    Rule(Install, Name("postinst"), "dpkg runs it at installation"),
    Rule(Install, Name("preinst"), "dpkg runs it at installation"),
    Rule(Install, Name("postrm"), "dpkg runs it at removal"),
    Rule(Install, Name("prerm"), "dpkg runs it at removal"),
    Rule(Build, Name("makefile"), "make runs it"),
    Rule(Build, Name("gnumakefile"), "make runs it"),
    Rule(Build, Start("makefile."), "make or automake runs it"),
    Rule(Build, End(".mk"), "make runs it"),
    Rule(Build, End(".mak"), "make runs it"),
    Rule(Build, Name("kbuild"), "the kernel's build runs it"),
    Rule(Build, Name("justfile"), "just runs it"),
    Rule(Build, Name(".justfile"), "just runs it"),
    Rule(Build, End(".just"), "just runs it"),
    Rule(Build, Start("taskfile."), "task runs it"),
    Rule(Build, Name("cmakelists.txt"), "cmake runs it"),
    Rule(Build, End(".cmake"), "cmake runs it"),
    Rule(Build, Name("cmakepresets.json"), "cmake takes programs to run from it"),
    Rule(Build, Name("meson.build"), "meson runs it"),
    Rule(Build, Name("build.ninja"), "ninja runs it"),
    Rule(Build, Name("configure"), "it is run before a build"),
    Rule(Build, Name("configure.ac"), "autoconf makes a program of it"),
    Rule(Build, Name("configure.in"), "autoconf makes a program of it"),
    Rule(Build, End(".m4"), "autoconf makes a program of it"),
    Rule(Build, Name("autogen.sh"), "it is run before a build"),
    Rule(Build, Name("bootstrap"), "it is run before a build"),
    Rule(Build, Name("bootstrap.sh"), "it is run before a build"),
    Rule(Build, Name("sconstruct"), "scons runs it"),
    Rule(Build, Name("sconscript"), "scons runs it"),
    Rule(Build, Name("wscript"), "waf runs it"),
    Rule(Build, Name("build"), "a build by its name"),
    Rule(Build, Name("build.bazel"), "bazel runs it"),
    Rule(Build, Name("workspace"), "bazel runs it"),
    Rule(Build, Name("workspace.bazel"), "bazel runs it"),
    Rule(Build, Name("module.bazel"), "bazel runs it"),
    Rule(Build, End(".bzl"), "bazel runs it"),
    Rule(Build, Name(".bazelrc"), "bazel takes its options from it"),
    Rule(Build, Name("buck"), "buck runs it"),
    Rule(Build, Name(".buckconfig"), "buck takes programs to run from it"),
    Rule(Build, Name("rakefile"), "rake runs it"),
    Rule(Build, End(".rake"), "rake runs it"),
    Rule(Build, Name("build.sh"), "a build by its name"),
    Rule(Build, Name("build.py"), "a build by its name"),
    Rule(Build, Name("build.xml"), "ant runs it"),
    Rule(Build, Name("pom.xml"), "maven runs it"),
    Rule(Build, In(".mvn"), "maven loads extensions from it"),
    Rule(Build, Start("mvnw"), "it downloads maven and runs it"),
    Rule(Build, End(".gradle"), "gradle runs it"),
    Rule(Build, End(".gradle.kts"), "gradle runs it"),
    Rule(Build, Name("gradle.properties"), "gradle takes its options from it"),
    Rule(Build, Start("gradlew"), "it downloads gradle and runs it"),
    Rule(Build, In("gradle/wrapper"), "it is, or names, the gradle that is run"),
    Rule(Build, In("buildsrc"), "gradle compiles and runs it before every build"),
    Rule(Build, Name("build.sbt"), "sbt runs it"),
    Rule(Build, Name("build.sc"), "mill runs it"),
    Rule(Build, Name("mix.exs"), "mix runs it"),
    Rule(Build, Start("rebar.config"), "rebar runs it"),
    Rule(Build, Name("setup.hs"), "cabal runs it"),
    Rule(Build, Name("build.zig"), "zig runs it"),
    Rule(Build, Name("project.clj"), "leiningen runs it"),
    Rule(Build, Name("flake.nix"), "nix evaluates it"),
    Rule(Build, Name("default.nix"), "nix evaluates it"),
    Rule(Build, End(".csproj"), "msbuild runs it"),
    Rule(Build, End(".fsproj"), "msbuild runs it"),
    Rule(Build, End(".vbproj"), "msbuild runs it"),
    Rule(Build, End(".vcxproj"), "msbuild runs it"),
    Rule(Build, End(".props"), "msbuild runs it"),
    Rule(Build, End(".targets"), "msbuild runs it"),
    Rule(Build, End(".pbxproj"), "xcode runs its build phases"),
    Rule(Build, Name("dockerfile"), "docker runs it"),
    Rule(Build, Start("dockerfile."), "docker runs it"),
    Rule(Build, End(".dockerfile"), "docker runs it"),
    Rule(Build, Name("containerfile"), "podman runs it"),
    Rule(Build, Start("docker-compose"), "docker mounts and runs what it names"),
    Rule(Build, Start("compose."), "docker mounts and runs what it names"),
    Rule(Build, Name("vagrantfile"), "vagrant evaluates it"),
    Rule(Build, Start("procfile"), "it names the programs that are started"),
    Rule(Build, Name("tiltfile"), "tilt runs it"),
    Rule(Build, Name("earthfile"), "earthly runs it"),
    Rule(Build, Name("skaffold.yaml"), "skaffold runs it"),
    Rule(Build, Name("tox.ini"), "tox runs the commands it names"),
    Rule(Build, Name("noxfile.py"), "nox runs it"),
    Rule(Build, Name("fabfile.py"), "fabric runs it"),
    Rule(Build, Name("tasks.py"), "invoke runs it"),
    Rule(Build, Name("dodo.py"), "doit runs it"),
    Rule(Build, Name("conftest.py"), "pytest runs it before any test"),
    Rule(Build, Name("pytest.ini"), "pytest loads the plug-ins it names"),
    Rule(Build, Start("gulpfile."), "gulp runs it"),
    Rule(Build, Start("gruntfile."), "grunt runs it"),
    Rule(Build, End(".config.js"), "a tool runs it at its start"),
    Rule(Build, End(".config.cjs"), "a tool runs it at its start"),
    Rule(Build, End(".config.mjs"), "a tool runs it at its start"),
    Rule(Build, End(".config.ts"), "a tool runs it at its start"),
    Rule(Build, End(".config.mts"), "a tool runs it at its start"),
    Rule(Build, End(".config.cts"), "a tool runs it at its start"),
    Rule(Build, Start(".eslintrc"), "the linter loads the plug-ins it names"),
    Rule(Build, Start(".babelrc"), "the compiler loads the plug-ins it names"),
    Rule(Build, Start(".prettierrc"), "the formatter loads the plug-ins it names"),
    Rule(Build, Start(".mocharc"), "the test runner loads the code it names"),
    Rule(Build, Start(".swcrc"), "the compiler loads the plug-ins it names"),
    Rule(Build, Start(".postcssrc"), "the compiler loads the plug-ins it names"),
    Rule(Build, Start(".stylelintrc"), "the linter loads the plug-ins it names"),
    Rule(Build, Name("nx.json"), "nx runs the commands it names"),
    Rule(Build, Name("turbo.json"), "turbo runs the tasks it names"),
    Rule(Build, Name(".pylintrc"), "the linter runs the code it names"),
    Rule(Generated, Name("package-lock.json"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("npm-shrinkwrap.json"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("yarn.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("pnpm-lock.yaml"), "it decides what an install downloads and runs"),
    Rule(Generated, Start("bun.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("deno.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("cargo.lock"), "it decides what a build downloads and runs"),
    Rule(Generated, Name("poetry.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("uv.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("pdm.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("pipfile.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("gemfile.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("composer.lock"), "it decides what an install downloads and runs"),
    Rule(Generated, Name("flake.lock"), "it decides what a build downloads and runs"),
    Rule(Generated, Name("go.sum"), "it decides which downloads are believed"),
    Rule(Generated, End(".min.js"), "it was made by a program, not written"),
    Rule(Generated, End(".min.css"), "it was made by a program, not written"),
    Rule(Generated, End(".map"), "it was made by a program, not written"),
    Rule(Generated, End(".pb.go"), "it was made by a program, not written"),
    Rule(Generated, End("_pb2.py"), "it was made by a program, not written"),
    Rule(IgnoreRules, Name(".gitignore"), "it decides which files git, and reviews, overlook"),
    Rule(
        IgnoreRules,
        Name(".gitattributes"),
        "it decides which programs filter files, and which differences show",
    ),
    Rule(
        IgnoreRules,
        In(".git/info"),
        "it decides which files git overlooks, and how it treats them",
    ),
    Rule(IgnoreRules, Name(".git-blame-ignore-revs"), "it decides which commits are overlooked"),
    Rule(IgnoreRules, Name(".mailmap"), "it decides whose name stands on a commit"),
    Rule(IgnoreRules, End("ignore"), "it decides which files a tool overlooks"),
    Rule(IgnoreRules, Name("codeowners"), "it decides whose review is asked for"),
];

/// The flags of a path.
pub(super) fn rules(change: &Change, path: &RelPath) -> Vec<Risk> {
    let lower = Lower::of(path);
    let name = lower.name();
    let folder = lower.path.len() - name.len();
    // What is to be gone can run nothing; but rules that are gone let other things through.
    let comes = change.new.is_some() && *path == change.path;
    let is_folder = comes && matches!(change.new, Some(Node::Dir { .. }));
    // A link may stand for a whole folder.
    let is_link = matches!(change.new, Some(Node::Symlink { .. }));
    let fits = |rule: &&Rule| {
        let Rule(kind, pattern, _) = rule;
        if !comes && *kind != IgnoreRules {
            return false;
        }
        match pattern {
            // A hidden file of ignore rules begins with a dot, whatever tool's it is.
            End("ignore") => !is_folder && name.starts_with(b".") && name.ends_with(b"ignore"),
            Name(word) => !is_folder && name == word.as_bytes(),
            End(word) => !is_folder && name.len() > word.len() && name.ends_with(word.as_bytes()),
            Start(word) => !is_folder && name.starts_with(word.as_bytes()),
            In(word) => {
                let end = if is_link { lower.path.len() } else { folder };
                is_in(&lower.path[..end], word.as_bytes())
            }
        }
    };
    RULES.iter().filter(fits).map(|Rule(kind, _, why)| Risk::new(*kind, *why)).collect()
}

/// Whether the folders `path` leads through hold those of `word` in a row.
fn is_in(path: &[u8], word: &[u8]) -> bool {
    let starts = std::iter::once(0)
        .chain(path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1));
    starts.into_iter().any(|at| {
        path[at..].strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_in_lower_case_and_said_once() {
        let mut seen = std::collections::HashSet::new();
        for Rule(_, pattern, why) in RULES {
            let (tag, Name(word) | End(word) | Start(word) | In(word)) =
                (std::mem::discriminant(pattern), pattern);
            assert_eq!(*word, word.to_ascii_lowercase());
            assert!(seen.insert((tag, *word)), "{word}");
            assert!(!why.is_empty() && !why.ends_with('.'));
        }
    }

    #[test]
    fn a_folder_is_meant_by_whole_names() {
        assert!(is_in(b"a/.vscode/", b".vscode"));
        assert!(is_in(b".github/workflows/", b".github/workflows"));
        assert!(!is_in(b"a/x.vscode/", b".vscode"));
        assert!(!is_in(b".vscode-test/", b".vscode"));
        assert!(!is_in(b"", b".vscode"));
    }
}
