//! Opens the driver's library while the program runs: nothing is linked, and no toolkit is needed to build.

use std::error::Error as _;

use libloading::Library;

/// What the library may be called on an operating system, best first. A bare name is looked up where the system's loader
/// looks; the paths are those of WSL and of NixOS, which the loader may not be told of.
///
/// `libcuda.so.1` comes before `libcuda.so`, because a toolkit's stub has the latter name.
fn names(os: &str) -> &'static [&'static str] {
    match os {
        "windows" => &["nvcuda.dll"],
        _ => &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1"],
    }
}

/// The driver's library.
///
/// # Errors
/// A sentence, if there is none, or it cannot be loaded.
pub fn open() -> Result<Library, String> {
    let mut refusal = None;
    for &name in names(std::env::consts::OS) {
        // SAFETY: loading the driver's library runs its initialisers, which is what the call is for.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => refusal = refusal.or(Some(text(&error)).filter(|text| !is_absent(text))),
        }
    }
    Err(match refusal {
        None => "the CUDA driver library (libcuda) is not installed".into(),
        Some(error) => format!("the CUDA driver library (libcuda) cannot be loaded: {error}"),
    })
}

/// What the loader says, its own words included.
fn text(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

/// Does the loader say that there is no such file?
fn is_absent(refusal: &str) -> bool {
    // 126 is what Windows says in every language.
    refusal.contains("No such file") || refusal.contains("os error 126")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_its_names() {
        assert_eq!(names("windows"), ["nvcuda.dll"]);
        assert_eq!(names("linux")[0], "libcuda.so.1");
        assert!(names("linux").iter().any(|name| name.contains("/wsl/")));
    }

    #[test]
    fn what_is_not_there_is_told_from_what_cannot_be_loaded() {
        // SAFETY: there is no such library, or it is no library.
        let refusal = |name: &str| text(&unsafe { Library::new(name) }.expect_err(name));
        if cfg!(target_os = "linux") {
            assert!(is_absent(&refusal("libcutlet-none.so.1")));
            let text = std::env::temp_dir().join(format!("cutlet-no-library-{}.so", std::process::id()));
            std::fs::write(&text, "no library").expect("a file");
            assert!(!is_absent(&refusal(text.to_str().expect("a path"))));
            std::fs::remove_file(&text).expect("its end");
        }
    }
}
