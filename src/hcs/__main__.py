"""``python -m hcs`` is ``hcs``."""

from hcs.cli.main import main

if __name__ == "__main__":
    main()
