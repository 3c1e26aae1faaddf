//! The maps of the data plane, by name: typed access to their entries, with errors that name them.

use std::{collections::BTreeMap, fmt::Debug, path::Path};

use aya::{
    Ebpf, Pod,
    maps::{Array, LpmTrie, Map, MapData, MapError, PerCpuArray, lpm_trie::Key, xdp::DevMap},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Error, Result, mapped::Mapped, object, value::Plain};

/// What can be a key or a value: plain data.
pub(crate) trait Value: FromBytes + IntoBytes + Immutable + Copy + 'static {}
impl<T: FromBytes + IntoBytes + Immutable + Copy + 'static> Value for T {}

/// Maps by name.
pub(crate) struct Maps(BTreeMap<&'static str, Map>);

impl Maps {
    /// Takes the maps called `names` out of a loaded object.
    pub(crate) fn take(ebpf: &mut Ebpf, names: &[&'static str]) -> Result<Self> {
        let take = |&name| Ok((name, ebpf.take_map(name).ok_or(Error::Missing { name })?));
        names.iter().map(take).collect::<Result<_>>().map(Self)
    }

    /// Opens the maps called `names` where they were pinned.
    pub(crate) fn open(folder: &Path, names: &[&'static str]) -> Result<Self> {
        let open = |&name| {
            let path = folder.join(name);
            MapData::from_pin(&path)
                .and_then(Map::from_map_data)
                .map(|map| (name, map))
                .map_err(|error| Error::Pin {
                    action: "open the map pinned at",
                    path,
                    reason: error.to_string(),
                })
        };
        names.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// Pins every map under its name.
    pub(crate) fn pin(&self, folder: &Path) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|(name, map)| object::pin(folder, name, |path| map.pin(path)))
    }

    /// Pins the map called `name` at `path`.
    #[cfg(feature = "harness")]
    pub(crate) fn pin_one(&self, name: &'static str, path: &Path) -> Result<()> {
        self.map(name)?.pin(path).map_err(|error| Error::Pin {
            action: "pin",
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    fn map(&self, name: &'static str) -> Result<&Map> {
        self.0.get(name).ok_or(Error::Missing { name })
    }

    fn map_mut(&mut self, name: &'static str) -> Result<&mut Map> {
        self.0.get_mut(name).ok_or(Error::Missing { name })
    }

    /// Entry `index` of the array `name`.
    pub(crate) fn get<V: Value>(&self, name: &'static str, index: u32) -> Result<V> {
        let array = Array::<_, Plain<V>>::try_from(self.map(name)?).map_err(unfit(name))?;
        let value = array.get(&index, 0).map_err(failed(name, "read", index))?;
        Ok(value.0)
    }

    /// Sets entry `index` of the array `name`.
    pub(crate) fn set<V: Value>(&mut self, name: &'static str, index: u32, value: V) -> Result<()> {
        let mut array = Array::<_, Plain<V>>::try_from(self.map_mut(name)?).map_err(unfit(name))?;
        array
            .set(index, Plain(value), 0)
            .map_err(failed(name, "write", index))
    }

    /// Lets frames be redirected to the interface `ifindex`, under the number `key`.
    pub(crate) fn set_device(&mut self, name: &'static str, key: u32, ifindex: u32) -> Result<()> {
        let mut devices = DevMap::try_from(self.map_mut(name)?).map_err(unfit(name))?;
        devices
            .set(key, ifindex, None, 0)
            .map_err(|error| match error {
                aya::maps::xdp::XdpMapError::MapError(source) => failed(name, "write", key)(source),
                aya::maps::xdp::XdpMapError::ChainedProgramNotSupported => Error::Missing { name },
            })
    }

    /// Adds an entry to the trie `name`, or replaces it.
    pub(crate) fn insert_prefix<K: Value + Debug, V: Value>(
        &mut self,
        name: &'static str,
        prefix_len: u32,
        key: K,
        value: V,
    ) -> Result<()> {
        let mut trie =
            LpmTrie::<_, Plain<K>, Plain<V>>::try_from(self.map_mut(name)?).map_err(unfit(name))?;
        trie.insert(&Key::new(prefix_len, Plain(key)), Plain(value), 0)
            .map_err(failed(name, "write", format_args!("{key:?}/{prefix_len}")))
    }

    /// Removes an entry from the trie `name`; returns whether it was there.
    pub(crate) fn remove_prefix<K: Value + Debug, V: Value>(
        &mut self,
        name: &'static str,
        prefix_len: u32,
        key: K,
    ) -> Result<bool> {
        let mut trie =
            LpmTrie::<_, Plain<K>, Plain<V>>::try_from(self.map_mut(name)?).map_err(unfit(name))?;
        let removed = trie.remove(&Key::new(prefix_len, Plain(key)));
        was_there(removed).map_err(failed(name, "remove", format_args!("{key:?}/{prefix_len}")))
    }

    /// All entries of the trie `name`, with the lengths of their prefixes. Entries that come or go meanwhile may be
    /// among them or not.
    pub(crate) fn prefixes<K: Value, V: Value>(
        &self,
        name: &'static str,
    ) -> Result<Vec<(u32, K, V)>> {
        let trie =
            LpmTrie::<_, Plain<K>, Plain<V>>::try_from(self.map(name)?).map_err(unfit(name))?;
        let entry = |entry: Result<(Key<Plain<K>>, Plain<V>), MapError>| {
            let (key, value) = entry.map_err(failed(name, "list", "all"))?;
            Ok((key.prefix_len(), key.data().0, value.0))
        };
        trie.iter().map(entry).collect()
    }

    /// Entry `index` of the per-CPU array `name`, of every processor.
    pub(crate) fn per_cpu<V: Pod>(&self, name: &'static str, index: u32) -> Result<Vec<V>> {
        let array = PerCpuArray::<_, V>::try_from(self.map(name)?).map_err(unfit(name))?;
        let values = array.get(&index, 0).map_err(failed(name, "read", index))?;
        Ok(values.iter().copied().collect())
    }

    /// Copies the entries of the per-CPU array `name` from `other`, as many as both have.
    pub(crate) fn copy_per_cpu<V: Pod>(&mut self, other: &Self, name: &'static str) -> Result<()> {
        let from = PerCpuArray::<_, V>::try_from(other.map(name)?).map_err(unfit(name))?;
        let entries = other.capacity(name)?.min(self.capacity(name)?);
        let mut to = PerCpuArray::<_, V>::try_from(self.map_mut(name)?).map_err(unfit(name))?;
        for index in 0..entries {
            let values = from.get(&index, 0).map_err(failed(name, "read", index))?;
            to.set(index, values, 0)
                .map_err(failed(name, "write", index))?;
        }
        Ok(())
    }

    /// How many entries the map `name` can have.
    pub(crate) fn capacity(&self, name: &'static str) -> Result<u32> {
        let data = self.data(name)?;
        let info = data.info().map_err(unfit(name))?;
        Ok(info.max_entries())
    }

    /// How much kernel memory the map `name` takes, in bytes, as the kernel counts it (`bpf_map_memory_usage`).
    #[cfg(feature = "harness")]
    pub(crate) fn memory(&self, name: &'static str) -> Result<u64> {
        use std::os::fd::{AsFd as _, AsRawFd as _};

        let fd = self.data(name)?.fd().as_fd().as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(field, _)| *field == "memlock")
            .and_then(|(_, bytes)| bytes.trim().parse().ok())
            .ok_or(Error::Missing { name })
    }

    /// The array `name` in memory.
    pub(crate) fn mapped<T: FromBytes + IntoBytes>(&self, name: &'static str) -> Result<Mapped<T>> {
        Mapped::new(name, self.data(name)?, self.capacity(name)? as usize)
    }

    /// For `bpf_tail_call`: makes `program` entry 0 of the program array `name`.
    #[cfg(feature = "harness")]
    pub(crate) fn set_stage(
        &mut self,
        name: &'static str,
        program: &aya::programs::ProgramFd,
    ) -> Result<()> {
        let mut stages =
            aya::maps::ProgramArray::try_from(self.map_mut(name)?).map_err(unfit(name))?;
        stages.set(0, program, 0).map_err(failed(name, "write", 0))
    }

    /// Another handle of the map `name`.
    pub(crate) fn open_again(&self, name: &'static str) -> Result<Map> {
        let id = self.data(name)?.info().map_err(unfit(name))?.id();
        MapData::from_id(id)
            .and_then(Map::from_map_data)
            .map_err(unfit(name))
    }

    fn data(&self, name: &'static str) -> Result<&MapData> {
        match self.map(name)? {
            Map::Array(data)
            | Map::PerCpuArray(data)
            | Map::HashMap(data)
            | Map::LpmTrie(data)
            | Map::DevMap(data)
            | Map::RingBuf(data) => Ok(data),
            _ => Err(Error::Missing { name }),
        }
    }
}

/// Whether the entry was there that was to be removed.
fn was_there(removed: Result<(), MapError>) -> Result<bool, MapError> {
    match removed {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        Err(MapError::SyscallError(error))
            if error.io_error.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn unfit(name: &'static str) -> impl Fn(MapError) -> Error {
    move |source| Error::Map {
        name,
        source: Box::new(source),
    }
}

fn failed(
    name: &'static str,
    action: &'static str,
    key: impl ToString,
) -> impl FnOnce(MapError) -> Error {
    let key = key.to_string();
    move |source| Error::Entry {
        name,
        action,
        key,
        source: Box::new(source),
    }
}
