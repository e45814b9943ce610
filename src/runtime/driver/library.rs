//! Loading of the driver's library at run time: nothing is linked, and a build needs no toolkit.

use std::error::Error as _;

use libloading::Library;

/// Returns the names of the library on an operating system, in order of preference. The system's
/// loader searches its directories for a bare name. The paths are those of WSL and NixOS, which may
/// be absent from the loader's configuration.
///
/// `libcuda.so.1` precedes `libcuda.so`, because a toolkit's stub has the latter name.
fn names(os: &str) -> &'static [&'static str] {
    match os {
        "windows" => &["nvcuda.dll"],
        _ => &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1"],
    }
}

/// Opens the driver's library.
///
/// # Errors
/// A sentence, if there is none, or it cannot be loaded.
pub fn open() -> Result<Library, String> {
    let mut refusal = None;
    for &name in names(std::env::consts::OS) {
        // SAFETY: loading the driver's library runs its initializers, which is the purpose of the
        // call.
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

/// Returns the loader's error, including its own text.
fn text(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

/// Returns true if the loader reports that there is no such file.
fn is_absent(refusal: &str) -> bool {
    // 126 is the code of Windows in every language.
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
    fn missing_libraries_differ_from_broken_ones() {
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
