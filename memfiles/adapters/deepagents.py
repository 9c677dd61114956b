"""A backend of deepagents over a session: ``/<name>`` is a memory file or an entry, as ``MemoryFolder`` has them.

What the declaration forbids is an error in the backend's own results; nothing is raised. Declared files are never
deleted, and nothing but text is kept. Reads cross over to a thread as the protocol's own do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memfiles.adapters.errors_as_results import told_by
from memfiles.adapters.shapes.folder import MemoryFolder
from memfiles.adapters.shapes.listing import children
from memfiles.errors import ExtraMissing, FileNotDeclared, LevelDenied, MemfilesError, ReadOnly
from memfiles.tools.worker_calls import run_in_worker

try:
    from deepagents.backends import protocol, utils
except ImportError as error:
    raise ExtraMissing("the backend for deepagents needs an extra: pip install 'memfiles[deepagents]'") from error

if TYPE_CHECKING:
    from memfiles.adapters.shapes.folder import EntryText, FileText, Lying
    from memfiles.tools.session import Session


def _crossing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method in a worker thread; when it is cancelled, its change was made whole or not at all."""

    async def crossing(self: MemfilesBackend, *arguments: Any, **options: Any) -> Any:
        return await run_in_worker(lambda: method(self, *arguments, **options))

    return crossing


class MemfilesBackend(protocol.BackendProtocol):
    """The files of one session, for ``create_deep_agent(backend=...)``.

    deepagents keeps long tool results and histories in files of its own: route a folder of it here, and only that, as
    in ``CompositeBackend(default=StateBackend(), routes={"/memories/": MemfilesBackend(session)})``.
    """

    def __init__(self, session: Session) -> None:
        self._folder = MemoryFolder(session)

    @told_by(protocol.LsResult)
    def ls(self, path: str) -> protocol.LsResult:
        """What lies in a folder: texts, and folders, whose paths end in "/"."""
        prefix = f"{_name(path)}/".lstrip("/")
        here = children(self._folder.texts(prefix), prefix=prefix)
        return protocol.LsResult(entries=[_info(name, lying) for name, lying in here.items()])

    @told_by(protocol.ReadResult)
    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> protocol.ReadResult:
        """Some lines of a text."""
        return utils.slice_read_response(_data(_find(self._folder, file_path)), offset, limit)

    @told_by(protocol.GrepResult)
    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> protocol.GrepResult:
        """The lines that hold a text."""
        files = {f"/{name}": _data(lying) for name, lying in self._folder.texts().items()}
        return utils.grep_matches_from_files(files, pattern, path, glob, max_count=max_count)

    @told_by(protocol.GlobResult)
    def glob(self, pattern: str, path: str | None = None) -> protocol.GlobResult:
        """The texts whose path below ``path`` fits a pattern, the newest first."""
        fits, here = utils.compile_grep_include_glob(pattern), _name(path or "/")
        found, base = self._folder.texts(here), f"{here}/".lstrip("/")
        if here in found:  # a text, though there may be a folder of the same name
            found, base = {here: found[here]}, here[: here.rfind("/") + 1]
        texts = [(name, lying) for name, lying in found.items() if name.startswith(base) and fits(name[len(base) :])]
        newest = sorted(texts, key=lambda text: text[1].updated_at, reverse=True)
        return protocol.GlobResult(matches=[_info(name, lying) for name, lying in newest])

    @told_by(protocol.WriteResult)
    def write(self, file_path: str, content: str) -> protocol.WriteResult:
        """Make ``content`` the whole text, of a new entry if there is none of that name."""
        self._folder.put(_name(file_path), content)
        return protocol.WriteResult(path=file_path)

    @told_by(protocol.EditResult)
    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> protocol.EditResult:
        """Replace a text that occurs once, or every time it occurs."""
        found = _find(self._folder, file_path)
        replaced = utils.perform_string_replacement(found.text, old_string, new_string, replace_all)
        if isinstance(replaced, str):
            return protocol.EditResult(error=replaced)
        found.edit(old_string, new_string) if replaced[1] == 1 else found.put(replaced[0])
        return protocol.EditResult(path=file_path, occurrences=replaced[1])

    @told_by(protocol.DeleteResult)
    def delete(self, file_path: str) -> protocol.DeleteResult:
        """Delete a text and all that lies below it as a folder, in one commit, or nothing of it."""
        if not self._folder.delete(_name(file_path)):
            return protocol.DeleteResult(error=f"there is nothing at {file_path}")
        return protocol.DeleteResult(path=file_path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[protocol.FileUploadResponse]:
        """Write several texts, each as ``write`` does."""
        return [protocol.FileUploadResponse(path, error=self._uploaded(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """Several texts, whole, as UTF-8."""
        return [self._downloaded(path) for path in paths]

    awrite, aedit, adelete = _crossing(write), _crossing(edit), _crossing(delete)
    aupload_files = _crossing(upload_files)

    def _uploaded(self, path: str, data: bytes) -> str | None:
        try:
            self._folder.put(_name(path), data.decode())
        except (FileNotDeclared, LevelDenied, ReadOnly):
            return protocol.PERMISSION_DENIED
        except (MemfilesError, ValueError) as error:
            return str(error)
        return None

    def _downloaded(self, path: str) -> protocol.FileDownloadResponse:
        try:
            return protocol.FileDownloadResponse(path, content=_find(self._folder, path).text.encode())
        except FileNotDeclared:
            is_folder = bool(self._folder.texts(f"{_name(path)}/"))
            return protocol.FileDownloadResponse(path, error="is_directory" if is_folder else "file_not_found")
        except (MemfilesError, ValueError) as error:
            return protocol.FileDownloadResponse(path, error=str(error))


def _find(folder: MemoryFolder, path: str) -> FileText | EntryText:
    found = folder.find(_name(path))
    if found is None:
        raise FileNotDeclared(f"there is no file {path}")
    return found


def _name(path: str) -> str:
    return utils.validate_path(path).removeprefix("/")


def _data(text: FileText | EntryText | Lying) -> protocol.FileData:
    return protocol.FileData(content=text.text, encoding="utf-8")


def _info(name: str, lying: Lying | None) -> protocol.FileInfo:
    if lying is None:
        return {"path": f"/{name}", "is_dir": True}
    return {"path": f"/{name}", "is_dir": False, "size": lying.size_bytes, "modified_at": lying.updated_at}
