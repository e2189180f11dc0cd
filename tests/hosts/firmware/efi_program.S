# A program for UEFI firmware, as small as one can be: it says on the first serial port that it was started. The
# headers are spelled out (PE/COFF specification), so that nothing but an assembler is needed.
  .globl _start
_start:
image:
  .ascii "MZ"
  .org 0x3c
  .long pe - image
pe:
  .ascii "PE\0\0"
  .word 0x8664                     # machine: x86-64
  .word 1                          # sections
  .long 0, 0, 0                    # time, symbols
  .word section - optional         # size of the optional header
  .word 0x0206                     # executable, without line numbers and debug information
optional:
  .word 0x020b                     # PE32+
  .byte 0, 0
  .long text_end - text            # size of code, of initialised and of uninitialised data
  .long 0, 0
  .long entry - image              # entry point
  .long text - image               # base of code
  .quad 0                          # preferred address: anywhere
  .long 0x200, 0x200               # alignment in memory and in the file
  .word 0, 0, 0, 0, 0, 0           # versions
  .long 0
  .long text_end - image           # size of the image, of the headers
  .long text - image
  .long 0                          # checksum
  .word 10, 0                      # an EFI application
  .quad 0, 0, 0, 0                 # stack and heap
  .long 0, 6                       # data directories, all empty
  .fill 6, 8, 0
section:
  .ascii ".text\0\0\0"
  .long text_end - text, text - image
  .long text_end - text, text - image
  .long 0, 0
  .long 0
  .long 0x60000020                 # code, to be read and executed
  .balign 0x200
text:
entry:
  leaq message(%rip), %rsi
  movw $0x3f8, %dx
next:
  lodsb
  testb %al, %al
  jz stop
  outb %al, %dx
  jmp next
stop:
  hlt
  jmp stop
message: .asciz "\r\nefi program: started\r\n"
  .balign 0x200
text_end:
