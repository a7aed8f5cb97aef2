%% Rules of the repository that no compiler checks.
-module(repo_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

-define(MAX_LINES, 400).

%% Every stub is declared as a NIF, and every NIF has a stub.
t_stubs(_) ->
    {Nifs, Exports} = declared("src/wasmtime_nif.erl"),
    ?assertEqual(lists:sort(Exports), lists:sort(Nifs)).

%% What a file declares as NIFs, and exports.
declared(File) ->
    {ok, Forms} = epp:parse_file(filename:join(wasmtime_test:root(), File), []),
    {lists:append([Nifs || {attribute, _, nifs, Nifs} <- Forms]),
     lists:append([Exports || {attribute, _, export, Exports} <- Forms])}.

%% The stubs are those of the library, as its source names them.
t_library(_) ->
    %% What is there in a build for tests only is none of them; that build does not load with another list.
    Paths = files(["native/nif/src/**/*.rs"]) -- files(["native/nif/src/nif/inject.rs"]),
    Sources = [Text || Path <- Paths, {ok, Text} <- [file:read_file(Path)]],
    Pattern = "#\\[(?:rustler::)?nif(?:\\([^]]*\\))?\\]\\s*(?:#\\[[^]]*\\]\\s*)*"
              "(?:pub(?:\\([a-z]+\\))? )?fn ([a-z0-9_]+)",
    Named = "#\\[(?:rustler::)?nif\\([^]]*name\\s*=\\s*\"([a-z0-9_]+)\"[^]]*\\)\\]",
    Names = lists:append([matches(Text, Pattern, Named) || Text <- Sources]),
    ?assertMatch([_ | _], Names),
    Stubs = [atom_to_binary(Name) || {Name, _} <- wasmtime_nif:module_info(exports),
                                     Name =/= module_info],
    ?assertEqual(lists:usort(Stubs), lists:usort(Names)).

%% The functions with the attribute, by their given name or their own.
matches(Text, Pattern, Named) ->
    Given = captures(Text, Named),
    Unnamed = re:replace(Text, Named, "", [global, {return, binary}]),
    Given ++ captures(Unnamed, Pattern).

captures(Text, Pattern) ->
    case re:run(Text, Pattern, [global, {capture, [1], binary}]) of
        {match, Captures} -> lists:append(Captures);
        nomatch -> []
    end.

%% No file is longer than a reader can hold; those that repeat one short shape may be.
t_file_sizes(_) ->
    Repeated = ["wasmtime.erl", "wasmtime_nif.erl"],
    Long = [{Path, Lines} || Path <- files(["src/*.erl", "include/*.hrl", "test/*.erl", "scripts/*", "scripts/*/*",
                                            "bench/*.erl", "native/*/src/**/*.rs",
                                            "native/*/tests/**/*.rs"]),
                             not lists:member(filename:basename(Path), Repeated),
                             Lines <- [lines(Path)], Lines > ?MAX_LINES],
    ?assertEqual([], Long).

lines(Path) ->
    {ok, Text} = file:read_file(Path),
    length(binary:matches(Text, <<"\n">>)).

%% Every module and script opens by saying what it is for.
t_file_headers(_) ->
    [begin
         {ok, <<First:2/binary, _/binary>>} = file:read_file(Path),
         ?assertEqual({Path, <<"%%">>}, {Path, First})
     end || Path <- files(["src/*.erl", "src/*.hrl", "include/*.hrl", "test/*.erl"])],
    [begin
         {ok, <<First:2/binary, _/binary>>} = file:read_file(Path),
         ?assertEqual({Path, <<";;">>}, {Path, First})
     end || Path <- files(["test/guests/*.wat"])].

%% Every guest is used by a suite.
t_guests(_) ->
    Suites = iolist_to_binary([element(2, file:read_file(Path)) || Path <- files(["test/*.erl"])]),
    Guests = [filename:basename(Path, ".wat") || Path <- files(["test/guests/*.wat"])],
    Unused = [Guest || Guest <- Guests, binary:match(Suites, list_to_binary(Guest)) =:= nomatch,
                       not lists:prefix("import_", Guest)],
    ?assertEqual([], Unused).

%% Every option has a check that a test provokes: see wasmtime_options_tests. Every public function
%% has a specification.
t_specs(_) ->
    Path = filename:join(wasmtime_test:root(), "src/wasmtime.erl"),
    {ok, Forms} = epp:parse_file(Path, []),
    Specs = [NameArity || {attribute, _, spec, {NameArity, _}} <- Forms],
    Exports = lists:append([Es || {attribute, _, export, Es} <- Forms]),
    ?assertEqual([], Exports -- Specs).

%% The version stands in one place for each language, and is the same.
t_versions(_) ->
    {ok, [{application, wasmtime, Props}]} =
        file:consult(filename:join(wasmtime_test:root(), "src/wasmtime.app.src")),
    {ok, Cargo} = file:read_file(filename:join(wasmtime_test:root(), "Cargo.toml")),
    ?assertEqual([list_to_binary(proplists:get_value(vsn, Props))],
                 captures(Cargo, "(?m)^version = \"([^\"]+)\"")).

files(Patterns) ->
    [Path || P <- Patterns, Path <- filelib:wildcard(filename:join(wasmtime_test:root(), P)),
             filelib:is_regular(Path)].
