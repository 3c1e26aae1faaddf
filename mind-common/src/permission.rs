//! Permission classes: what a protection domain may do with memory (section 4.2 of the paper).

use crate::table::{IS_LOST, MAY_READ, MAY_WRITE, Permission};

/// What a protection domain may do with a range of memory, each class including those before it.
///
/// The switch's tables hold it as the bits of a [`Permission`]; in JSON (feature `serde`) it is `none`, `read` or
/// `write`.
///
/// ```
/// use mind_common::permission::PermissionClass;
///
/// assert!(PermissionClass::Write > PermissionClass::Read);
/// let permission = PermissionClass::Read.permission();
/// assert_eq!(PermissionClass::of(permission), PermissionClass::Read);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[repr(i8)]
pub enum PermissionClass {
    /// Nothing, since the memory is lost: accesses fail as those of lost memory do (SIGBUS). The controller's choice only.
    Lost = -1,
    /// Nothing (`PROT_NONE`).
    #[default]
    None = 0,
    /// Read (`PROT_READ`).
    Read = 1,
    /// Read and write (`PROT_READ | PROT_WRITE`).
    Write = 2,
}

impl PermissionClass {
    /// The permission as the switch's tables hold it.
    pub const fn permission(self) -> Permission {
        let bits = match self {
            Self::Lost => IS_LOST,
            Self::None => 0,
            Self::Read => MAY_READ,
            Self::Write => MAY_READ | MAY_WRITE,
        };
        Permission { bits }
    }

    /// The strongest class that `permission` includes.
    pub const fn of(permission: Permission) -> Self {
        if permission.is_lost() {
            Self::Lost
        } else if permission.allows(MAY_READ | MAY_WRITE) {
            Self::Write
        } else if permission.allows(MAY_READ) {
            Self::Read
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_survives_the_tables() {
        for class in [
            PermissionClass::None,
            PermissionClass::Read,
            PermissionClass::Write,
        ] {
            assert_eq!(PermissionClass::of(class.permission()), class);
        }
    }

    #[test]
    fn writing_alone_is_no_class() {
        let bits = MAY_WRITE;
        assert_eq!(
            PermissionClass::of(Permission { bits }),
            PermissionClass::None
        );
    }
}
