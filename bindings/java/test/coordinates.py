"""The jar says which artifact it is: groupId, artifactId and version, as Maven reads them from META-INF.

    coordinates.py LIBBLEND.jar VERSION

Where Maven and its install plugin are here, `mvn install:install-file` puts the jar into a repository of the
test's own, told nothing but the file.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
import zipfile

POM = "META-INF/maven/io.libblend/libblend/pom.xml"
NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
PLUGINS = pathlib.Path("/usr/share/maven-repo")  # Debian's, which need no network


def main(jar, version):
    jar = pathlib.Path(jar).resolve()
    with zipfile.ZipFile(jar) as file:
        project = xml.etree.ElementTree.fromstring(file.read(POM))
        properties = file.read(POM.replace("pom.xml", "pom.properties")).decode().split()
    found = tuple(project.findtext(NAMESPACE + name) for name in ("groupId", "artifactId", "version", "packaging"))
    assert found == ("io.libblend", "libblend", version, "jar"), found
    assert set(properties) == {"groupId=io.libblend", "artifactId=libblend", f"version={version}"}, properties
    plugin = PLUGINS / "org/apache/maven/plugins/maven-install-plugin"
    if shutil.which("mvn") is None or not plugin.is_dir():
        print("without Maven's install plugin: the jar was not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        local = pathlib.Path(folder) / "m2"
        subprocess.run(["cp", "-rL", PLUGINS, local], stderr=subprocess.DEVNULL)  # some of its links lead nowhere
        newest = sorted(path.name for path in plugin.iterdir() if path.is_dir())[-1]
        subprocess.run(["mvn", "-q", "-o", f"-Dmaven.repo.local={local}",
                        f"org.apache.maven.plugins:maven-install-plugin:{newest}:install-file", f"-Dfile={jar}"],
                       cwd=folder, check=True)
        installed = local / "io/libblend/libblend" / version
        assert (installed / f"libblend-{version}.jar").read_bytes() == jar.read_bytes()
        assert (installed / f"libblend-{version}.pom").is_file()


main(*sys.argv[1:])
