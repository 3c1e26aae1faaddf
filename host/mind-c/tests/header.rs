//! `mind.h` is what is generated from the crate, and C and C++ compilers have nothing against it.

mod cc;

use std::path::Path;

use anyhow::Result;
use cc::Cc;

/// The header, as it is to be.
fn generated() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml"))
        .map_err(|error| anyhow::anyhow!("cbindgen.toml: {error}"))?;
    config.after_includes = Some(format!(
        "\n/* The version of this header; mind_version() is the library's. */\n\
         #define MIND_VERSION \"{}\"\n\
         #define MIND_VERSION_MAJOR {}\n\
         #define MIND_VERSION_MINOR {}\n\
         #define MIND_VERSION_PATCH {}\n\n\
         /* What a struct mind_options begins as: all defaults. */\n\
         #define MIND_OPTIONS_INIT {{ sizeof (struct mind_options), 0, 0, NULL }}",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ));
    let bindings = cbindgen::generate_with_config(root, config)?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    Ok(String::from_utf8(text)?)
}

#[test]
fn the_header_is_what_is_generated() -> Result<()> {
    // UPDATE_EXPECT=1 in the environment writes it.
    expect_test::expect_file!["../include/mind.h"].assert_eq(&generated()?);
    Ok(())
}

#[test]
fn compilers_have_nothing_against_the_header() -> Result<()> {
    let cc = Cc::new()?;
    // Twice, since it may come from two others.
    let program = "#include <mind.h>\n#include <mind.h>\nint main(void) { return 0; }\n";
    for (compiler, language, standard) in [
        ("cc", "c", "c11"),
        ("cc", "c", "c17"),
        ("c++", "c++", "c++11"),
        ("c++", "c++", "c++20"),
    ] {
        cc.check(compiler, language, standard, program)?;
    }
    Ok(())
}
