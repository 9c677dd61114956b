"""deepagents backend over a session: ``/<name>`` is a memory file or an entry, as in ``MemoryFolder``.

The rule this module enforces: nothing is raised. What the workflow forbids is an error in the backend's own results.
Declared files are never deleted, and only text is stored. Reads run in a thread, as the protocol's own do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memfiles.adapters.agent_calls import errors_as, needs
from memfiles.adapters.shapes.folder import MemoryFolder
from memfiles.errors import FileNotDeclared, LevelDenied, MemfilesError, ReadOnly
from memfiles.tools.worker_calls import checked_source, run_in_worker

with needs("the backend for deepagents needs an extra: pip install 'memfiles[deepagents]'"):
    from deepagents.backends import protocol, utils

    from memfiles.adapters.langgraph_store import session_in_run  # deepagents needs langgraph

if TYPE_CHECKING:
    from memfiles.adapters.shapes.folder import EntryText, FileText, ListedText
    from memfiles.tools.worker_calls import SessionSource


def _in_worker(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method asynchronous; if it is cancelled, its change was made whole or not at all."""

    async def crossing(self: MemfilesBackend, *arguments: Any, **options: Any) -> Any:
        return await run_in_worker(lambda: method(self, *arguments, **options))

    return crossing


class MemfilesBackend(protocol.BackendProtocol):
    """The files of one session, for ``create_deep_agent(backend=...)``.

    deepagents keeps long tool results and histories in files of its own, so route one folder here, and only that:
    ``CompositeBackend(default=StateBackend(), routes={"/memories/": MemfilesBackend(session)})``. ``session`` may be a
    function from the ``Runtime`` of a run to its session, so that one compiled agent serves many users.
    """

    def __init__(self, session: SessionSource[Any]) -> None:
        self._session = checked_source(session)

    @property
    def _folder(self) -> MemoryFolder:
        return MemoryFolder(session_in_run(self._session))

    @errors_as(protocol.LsResult)
    def ls(self, path: str) -> protocol.LsResult:
        """List the texts and folders in a folder; the paths of folders end in "/"."""
        return protocol.LsResult(entries=[_info(*each) for each in self._folder.children(_name(path)).items()])

    @errors_as(protocol.ReadResult)
    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> protocol.ReadResult:
        """Read some lines of a text."""
        return utils.slice_read_response(_data(self._find(file_path)), offset, limit)

    @errors_as(protocol.GrepResult)
    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> protocol.GrepResult:
        """Find the lines that contain a string."""
        files = {f"/{name}": _data(listed) for name, listed in self._folder.texts().items()}
        return utils.grep_matches_from_files(files, pattern, path, glob, max_count=max_count)

    @errors_as(protocol.GlobResult)
    def glob(self, pattern: str, path: str | None = None) -> protocol.GlobResult:
        """Find the texts whose path below ``path`` matches a pattern, newest first."""
        is_match, here = utils.compile_grep_include_glob(pattern), _name(path or "/")
        found, base = self._folder.texts(here), f"{here}/".lstrip("/")
        if here in found:  # a text, though there may be a folder of the same name
            found, base = {here: found[here]}, here[: here.rfind("/") + 1]
        texts = [each for each in found.items() if each[0].startswith(base) and is_match(each[0][len(base) :])]
        newest = sorted(texts, key=lambda text: text[1].updated_at, reverse=True)
        return protocol.GlobResult(matches=[_info(*each) for each in newest])

    @errors_as(protocol.WriteResult)
    def write(self, file_path: str, content: str) -> protocol.WriteResult:
        """Write a whole text, as a new entry if there is none of that name."""
        self._folder.put(_name(file_path), content)
        return protocol.WriteResult(path=file_path)

    @errors_as(protocol.EditResult)
    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> protocol.EditResult:
        """Replace a string that occurs once, or every occurrence."""
        found = self._find(file_path)
        replaced = utils.perform_string_replacement(found.content, old_string, new_string, replace_all)
        if isinstance(replaced, str):
            return protocol.EditResult(error=replaced)
        found.edit(old_string, new_string) if replaced[1] == 1 else found.put(replaced[0])
        return protocol.EditResult(path=file_path, occurrences=replaced[1])

    @errors_as(protocol.DeleteResult)
    def delete(self, file_path: str) -> protocol.DeleteResult:
        """Delete a text and all texts below it, in one commit, or none of them."""
        if not self._folder.delete(_name(file_path)):
            return protocol.DeleteResult(error=f"there is nothing at {file_path}")
        return protocol.DeleteResult(path=file_path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[protocol.FileUploadResponse]:
        """Write several texts, each as ``write`` does."""
        return [protocol.FileUploadResponse(path, error=self._upload(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """Read several whole texts, as UTF-8."""
        return [self._download(path) for path in paths]

    awrite, aedit, adelete = _in_worker(write), _in_worker(edit), _in_worker(delete)
    aupload_files = _in_worker(upload_files)

    def _upload(self, path: str, data: bytes) -> str | None:
        try:
            self._folder.put(_name(path), data.decode())
        except (MemfilesError, ValueError) as error:
            is_denied = isinstance(error, (FileNotDeclared, LevelDenied, ReadOnly))
            return protocol.PERMISSION_DENIED if is_denied else str(error)
        return None

    def _download(self, path: str) -> protocol.FileDownloadResponse:
        try:
            return protocol.FileDownloadResponse(path, content=self._find(path).content.encode())
        except FileNotDeclared:
            is_folder = bool(self._folder.texts(f"{_name(path)}/"))
            return protocol.FileDownloadResponse(path, error="is_directory" if is_folder else "file_not_found")
        except (MemfilesError, ValueError) as error:
            return protocol.FileDownloadResponse(path, error=str(error))

    def _find(self, path: str) -> FileText | EntryText:
        found = self._folder.find(_name(path))
        if found is None:
            raise FileNotDeclared(f"there is no file {path}")
        return found


def _name(path: str) -> str:
    return utils.validate_path(path).removeprefix("/")


def _data(text: FileText | EntryText | ListedText) -> protocol.FileData:
    return protocol.FileData(content=text.content, encoding="utf-8")


def _info(name: str, listed: ListedText | None) -> protocol.FileInfo:
    if listed is None:
        return {"path": f"/{name}", "is_dir": True}
    return {"path": f"/{name}", "is_dir": False, "size": listed.size_bytes, "modified_at": listed.updated_at}
