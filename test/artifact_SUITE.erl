%% Artifacts: what serialize writes, and that nothing else loads or harms.
-module(artifact_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, temp/2, write/3]).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

artifact(Name) -> artifact(Name, #{}).

artifact(Name, Opts) ->
    {ok, Bin} = wasmtime:serialize(mod(Name, Opts)),
    Bin.

works(Mod) ->
    {ok, Inst} = wasmtime:instantiate(Mod),
    ?assertEqual({ok, <<"image">>}, wasmtime:read_memory(Inst, 16, 5)),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"count">>, [])),
    wasmtime:destroy(Inst).

%% An artifact loads from memory and from a file, checked in either way, and works.
t_round_trip(Config) ->
    Bin = artifact(memory),
    {ok, FromBin} = wasmtime:deserialize(Bin),
    works(FromBin),
    Path = write(temp(Config, "a"), "memory.cwasm", Bin),
    [begin
         {ok, Mod} = wasmtime:deserialize_file(Path, #{check => Check}),
         works(Mod)
     end || Check <- [metadata, full]],
    {ok, Mod} = wasmtime:deserialize_file(Path),
    works(Mod).

%% What was loaded looks as it did, and serializes again.
t_again(_) ->
    {ok, Mod} = wasmtime:deserialize(artifact(memory)),
    ?assertEqual(wasmtime:exports(mod(memory)), wasmtime:exports(Mod)),
    {ok, Again} = wasmtime:serialize(Mod),
    {ok, Second} = wasmtime:deserialize(Again),
    works(Second).

%% The path may be a string, and not ASCII.
t_path(Config) ->
    Path = write(temp(Config, "höhe"), "ä.cwasm", artifact(memory)),
    {ok, FromString} = wasmtime:deserialize_file(Path),
    works(FromString),
    {ok, FromBin} = wasmtime:deserialize_file(unicode:characters_to_binary(Path)),
    works(FromBin).

%% The allocator is not part of an artifact.
t_pooled_or_not(Config) ->
    Pool = wasmtime_test:pool(#{}),
    Path = write(temp(Config, "p"), "memory.cwasm", artifact(memory, Pool)),
    {ok, Plain} = wasmtime:deserialize_file(Path),
    works(Plain),
    {ok, Pooled} = wasmtime:deserialize_file(Path, Pool),
    works(Pooled),
    ?assertMatch(#{total := 4, verify_failures := 0}, wasmtime:pool_info(Pooled)),
    {ok, FromPlain} = wasmtime:deserialize(artifact(memory), Pool),
    works(FromPlain).

%% Whether fuel is counted must match; without options both kinds load.
t_fuel(Config) ->
    Plain = artifact(memory),
    Fuel = artifact(memory, #{fuel => true}),
    ?assertMatch(?WASMTIME_ERROR(compile, incompatible),
                 wasmtime:deserialize(Plain, #{fuel => true})),
    ?assertMatch(?WASMTIME_ERROR(compile, incompatible),
                 wasmtime:deserialize(Fuel, #{fuel => false})),
    {ok, Mod} = wasmtime:deserialize(Fuel),
    ?assertMatch(#{fuel := true}, wasmtime:module_options(Mod)),
    works(Mod),
    {ok, FromFile} = wasmtime:deserialize_file(write(temp(Config, "f"), "fuel.cwasm", Fuel)),
    ?assertMatch(#{fuel := true}, wasmtime:module_options(FromFile)).

%% An artifact that counts on a proposal does not load where that is off: the error names it.
t_proposals(Config) ->
    Wide = #{proposals => #{wide_arithmetic => true}},
    Same = #{proposals => #{relaxed_simd_deterministic => true}},
    [begin
         Path = write(temp(Config, "proposals"), atom_to_list(Proposal), Artifact),
         [begin
              ?assertMatch(#{class := compile, kind := incompatible, key := proposals}, Error),
              [?assertMatch({_, {_, _}}, {Word, binary:match(map_get(message, Error), atom_to_binary(Word))})
               || Word <- [Proposal, proposals]]
          end || {error, Error} <- [wasmtime:deserialize(Artifact, Opts), wasmtime:deserialize_file(Path, Opts)]]
     end || {Proposal, Artifact, Opts} <- [{simd, artifact(memory), #{proposals => #{simd => false}}},
                                           {wide_arithmetic, artifact(memory, Wide), #{}},
                                           {relaxed_simd_deterministic, artifact(memory, Same), #{}},
                                           {relaxed_simd_deterministic, artifact(memory), Same}]],
    %% What is on by default may be named.
    ?assertMatch({ok, _}, wasmtime:deserialize(artifact(memory, #{proposals => #{gc => true}}))),
    ?assertMatch({ok, _}, wasmtime:deserialize(artifact(memory), #{proposals => #{gc => true}})),
    ?assertMatch({ok, _}, wasmtime:deserialize(artifact(memory), Wide)),
    Without = artifact(memory, #{proposals => #{simd => false}}),
    ?assertMatch({ok, _}, wasmtime:deserialize(Without, #{proposals => #{simd => false}})).

%% An artifact with a shared memory needs `threads' by name, as the module did.
t_shared_memory(Config) ->
    Threads = #{proposals => #{threads => true}},
    Artifact = artifact(shared, Threads),
    Path = write(temp(Config, "shared"), "shared.cwasm", Artifact),
    [?assertMatch({error, #{class := compile, kind := incompatible, key := proposals}}, Error)
     || Error <- [wasmtime:deserialize(Artifact), wasmtime:deserialize(Artifact, #{}),
                  wasmtime:deserialize_file(Path)]],
    {ok, Mod} = wasmtime:deserialize_file(Path, Threads),
    Inst = wasmtime_test:inst(Mod, #{}),
    ?assertEqual({ok, <<"shared">>}, wasmtime:read_memory(Inst, 3, 6)),
    ok = wasmtime:destroy(Inst).

%% What is no artifact is refused.
t_foreign(Config) ->
    Dir = temp(Config, "foreign"),
    [begin
         ?assertMatch(?WASMTIME_ERROR(compile, corrupted), wasmtime:deserialize(Bin)),
         Path = write(Dir, "x", Bin),
         [?assertMatch({error, #{class := compile}},
                       wasmtime:deserialize_file(Path, #{check => Check}))
          || Check <- [metadata, full]]
     end || Bin <- [<<>>, <<"x">>, binary:copy(<<0>>, 100_000), wasmtime_test:wasm(memory),
                    element(2, file:read_file(os:find_executable("erl"))),
                    rand:bytes(50_000)]].

%% A file that is not there, or is a folder, is `file'.
t_no_file(Config) ->
    Dir = temp(Config, "none"),
    ?assertMatch(?WASMTIME_ERROR(compile, file),
                 wasmtime:deserialize_file(filename:join(Dir, "missing"))),
    ?assertMatch(?WASMTIME_ERROR(compile, file), wasmtime:deserialize_file(Dir)).

%% A NUL in a path is refused, not a place to cut.
t_nul_in_path(Config) ->
    Path = write(temp(Config, "nul"), "a.cwasm", artifact(memory)),
    ?assertMatch(?WASMTIME_ERROR(compile, badarg),
                 wasmtime:deserialize_file([Path, 0, "x"])),
    ?assertMatch(?WASMTIME_ERROR(compile, badarg), wasmtime:deserialize_file(<<>>)).

%% Cut at any length, an artifact is refused by every check.
t_truncated(Config) ->
    Bin = artifact(memory),
    Dir = temp(Config, "cut"),
    Size = byte_size(Bin),
    Lengths = lists:seq(0, 64) ++ lists:seq(65, Size - 65, max(1, Size div 200))
        ++ lists:seq(Size - 64, Size - 1),
    [refused(Dir, binary:part(Bin, 0, Length), {cut, Length}) || Length <- Lengths].

%% Bytes after the end are refused as well.
t_appended(Config) ->
    refused(temp(Config, "long"), <<(artifact(memory))/binary, 0>>, appended).

%% Every bit of the last 512 bytes, where the footer is, matters to every check.
t_footer(Config) ->
    Bin = artifact(memory),
    Dir = temp(Config, "footer"),
    Size = byte_size(Bin),
    Bits = wasmtime_test:rounds([3], [0, 7], lists:seq(0, 7)),
    [full_refused(Dir, flip(Bin, At, Bit), {At, Bit})
     || At <- lists:seq(Size - 512, Size - 1), Bit <- Bits].

%% A flipped bit anywhere is found by the checksum of the whole.
t_flipped(Config) ->
    Bin = artifact(memory),
    Dir = temp(Config, "flip"),
    [begin
         At = rand:uniform(byte_size(Bin)) - 1,
         full_refused(Dir, flip(Bin, At, rand:uniform(8) - 1), At)
     end || _ <- lists:seq(1, wasmtime_test:rounds(300, 3000, 20_000))].

%% The quick check refuses a damaged footer, or loads what it points at: it never crashes on it.
t_footer_metadata(Config) ->
    Bin = artifact(memory),
    Dir = temp(Config, "meta"),
    Size = byte_size(Bin),
    Refused = [At || At <- lists:seq(Size - 64, Size - 1),
                     load_file(Dir, flip(Bin, At, 0), #{}) =/= ok],
    %% The last bytes are the footer's own, all but the checksum of the whole.
    ?assert(length(Refused) >= 32).

%% Two artifacts cannot be spliced.
t_spliced(Config) ->
    A = artifact(memory),
    B = artifact(add),
    Half = byte_size(A) div 2,
    Dir = temp(Config, "splice"),
    refused(Dir, <<(binary:part(A, 0, Half))/binary, B/binary>>, half),
    full_refused(Dir, <<B/binary, A/binary>>, both).

refused(Dir, Bin, What) ->
    full_refused(Dir, Bin, What),
    ?assertMatch({What, {error, #{class := compile}}}, {What, load_file(Dir, Bin, #{})}).

full_refused(Dir, Bin, What) ->
    ?assertMatch({What, {error, #{class := compile}}}, {What, wasmtime:deserialize(Bin)}),
    ?assertMatch({What, {error, #{class := compile}}},
                 {What, load_file(Dir, Bin, #{check => full})}).

load_file(Dir, Bin, Opts) ->
    case wasmtime:deserialize_file(write(Dir, "x.cwasm", Bin), Opts) of
        {ok, _} -> ok;
        Error -> Error
    end.

flip(Bin, At, Bit) ->
    <<Before:At/binary, Byte, After/binary>> = Bin,
    <<Before/binary, (Byte bxor (1 bsl Bit)), After/binary>>.

%% A file of a terabyte of nothing whose end says that all of it is a footer: nothing of that size is read or
%% allocated.
t_endless_footer(Config) ->
    Path = filename:join(temp(Config, "endless"), "m.cwasm"),
    {ok, File} = file:open(Path, [write, raw, binary]),
    At = (1 bsl 40) - 44,
    [begin
         Trailer = <<Footer:64/little, At:64/little, 0:64, 0:64, 1:32/little, "WASMBEAM">>,
         ok = file:pwrite(File, At, Trailer),
         ?assertMatch(?WASMTIME_ERROR(compile, corrupted), wasmtime:deserialize_file(Path, Opts))
     end || Footer <- [0, 1, At div 2, At - (1 bsl 28) - 1], Opts <- [#{}, #{check => full}]],
    ok = file:close(File).

%% The file may be unlinked or replaced by rename while a module of it lives.
t_replaced_file(Config) ->
    Dir = temp(Config, "replace"),
    Path = write(Dir, "m.cwasm", artifact(memory)),
    {ok, Mod} = wasmtime:deserialize_file(Path),
    ok = file:rename(write(Dir, "new", artifact(add)), Path),
    works(Mod),
    {ok, New} = wasmtime:deserialize_file(Path),
    ?assertEqual([{<<"add">>, func}], wasmtime:exports(New)),
    ok = file:delete(Path),
    works(Mod).

%% What an instance writes never reaches the file or another module of it.
t_file_is_private(Config) ->
    Bin = artifact(memory),
    Path = write(temp(Config, "private"), "m.cwasm", Bin),
    {ok, Mod} = wasmtime:deserialize_file(Path),
    {ok, Inst} = wasmtime:instantiate(Mod),
    ok = wasmtime:write_memory(Inst, 0, binary:copy(<<1>>, 131072)),
    ?assertEqual({ok, Bin}, file:read_file(Path)),
    works(Mod).
